"""A killed engine comes back with an empty cache, and the index is emptied, too."""

import asyncio

from tests.engine.machine.exact import (
    WITHIN_S,
    eventually,
    expected_hits,
    hits_of,
    knowing,
    replica,
)
from tests.engine.machine.fleet import Engines
from tests.engine.test_kv_events import text


def test_a_restart_empties_the_index(engines: Engines) -> None:
    engine = engines[0]
    prompt = text("before the restart", 900)

    async def work() -> None:
        async with knowing(*engines) as app:
            watcher = app.parts.addons["kv_events"].watcher
            assert watcher is not None
            index, one = watcher.index, replica(app, engine)
            await hits_of(engine, prompt)
            await eventually(lambda: index.entries(one) >= 28, "its blocks are known")
            engine.kill()
            engine.start()
            await asyncio.to_thread(engine.wait_until_ready)
            # The engine's first event after the start shows that its sequence numbers restarted.
            # The counters of the watcher are of both engines: only the index shows this restart.
            assert await hits_of(engine, text("after the restart", 900)) == 0
            async with asyncio.timeout(WITHIN_S):
                while await expected_hits(app, engine, prompt):
                    await asyncio.sleep(0.1)
            assert await hits_of(engine, prompt) == 0

    asyncio.run(work())
