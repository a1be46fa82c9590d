"""A replica whose address leads back to this router: a probe shows the loop.

The address of a load balancer in front of the router makes such a replica. The router refuses its
own addresses (`app/listeners.py`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.replicas.test_members_change_at_bad_times import states
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, running, scenario


@asynccontextmanager
async def balanced(router: Router) -> AsyncIterator[None]:
    """The router has itself as a replica, behind a balancer of connections."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def balance(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", router.port)
        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    server = await asyncio.start_server(balance, "127.0.0.1", 0)
    entry = {"id": "self", "url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    assert (await router.admin("/replicas", "POST", body=entry)).status == 201
    try:
        yield
    finally:
        server.close()


@scenario
async def test_it_is_down_and_gets_no_request() -> None:
    async with running(json_ok, policy="round_robin") as router, balanced(router):
        await eventually(lambda: states(router)["self"] == "down", "the loop is found")
        health = router.app.parts.fleet.replicas["self"].health
        assert "answered 508" in health.why_down and "`via`" in health.why_down
        for _ in range(6):
            assert (await router.ask(chat())).status == 200
        assert states(router) == {"r0": "ready", "self": "down"}
