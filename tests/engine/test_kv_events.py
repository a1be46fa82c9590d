"""KV events of real engines: the hits predicted by the index equal those that the engine finds.

The reference is the engine's own hit counter. Prompts have one token per character.
"""

import asyncio
import random

from router.app import App
from tests.engine.machine.exact import expected_hits, hits_of, knowing, replica
from tests.engine.machine.fleet import BLOCK_TOKENS, KV_BLOCKS, Engine, Engines


def text(seed: str, length: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "".join(random.Random(seed).choices(letters, k=length))


async def all_is_known(app: App, engine: Engine, prompt: str) -> None:
    """Fail unless the index soon has all full blocks of the prompt at this engine."""
    full = len(prompt) // BLOCK_TOKENS * BLOCK_TOKENS
    for _ in range(500):
        if await expected_hits(app, engine, prompt + "x" * 40) == full:
            break
        await asyncio.sleep(0.02)
    assert await expected_hits(app, engine, prompt + "x" * 40) == full


def test_the_index_agrees_with_the_engines_hits(engines: Engines) -> None:
    async def work() -> None:
        async with knowing(*engines) as app:
            watcher = app.parts.addons["kv_events"].watcher
            assert watcher is not None
            for number, engine in enumerate(engines):
                prompt = text(f"known {number}", 1000)
                assert await hits_of(engine, prompt) == 0
                await all_is_known(app, engine, prompt)
                # Query with the whole prompt, a part, an extension, another end, and another
                # prompt.
                for asked in (
                    prompt,
                    prompt[:500],
                    prompt + text("more", 300),
                    prompt[:700] + text("other", 300),
                    text(f"unknown {number}", 400),
                ):
                    expected = await expected_hits(app, engine, asked)
                    assert await hits_of(engine, asked) == expected, asked[:20]
            # Each block of these prompts is held by one engine only.
            asked = text("known 0", 1000)
            assert await expected_hits(app, engines[1], asked) == 0
            assert watcher.counters.garbage == 0

    asyncio.run(work())


def test_evictions_are_seen(engines: Engines) -> None:
    """Prompts with more blocks than the cache: the first ones are evicted, and the index no longer
    has them.
    """
    engine = engines[0]
    fit = KV_BLOCKS * BLOCK_TOKENS // 3800
    prompts = [text(f"fills {n}", 3800) for n in range(fit + 4)]

    async def work() -> None:
        async with knowing(engine) as app:
            watcher = app.parts.addons["kv_events"].watcher
            assert watcher is not None
            for prompt in prompts:
                assert await hits_of(engine, prompt) == 0
            last = prompts[-1]

            async def heard_all() -> bool:
                return await expected_hits(app, engine, last + "x") > 3700

            for _ in range(500):
                if await heard_all():
                    break
                await asyncio.sleep(0.02)
            assert await heard_all()
            held = watcher.index.entries(replica(app, engine))
            assert 0 < held <= KV_BLOCKS
            # Newest first: a query caches a prompt again, which evicts the oldest.
            for prompt in reversed(prompts[-fit:]):
                expected = await expected_hits(app, engine, prompt)
                assert expected > 0
                assert await hits_of(engine, prompt) == expected
            expected = await expected_hits(app, engine, prompts[0])
            assert expected == 0
            assert await hits_of(engine, prompts[0]) == 0

    asyncio.run(work())
