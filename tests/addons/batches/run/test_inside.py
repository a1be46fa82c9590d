"""An in-process connection is closed at both ends if its opening is cancelled at any point."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest

from router.addons.batches.run.inside import Inside
from tests.harness.replica import eventually
from tests.harness.running import scenario


class Far(asyncio.Protocol):
    """The data plane's end of the connection."""

    def __init__(self, live: set[Far]) -> None:
        self._live = live

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._live.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._live.discard(self)


@pytest.mark.parametrize("turns", range(12))
@scenario
async def test_a_wait_that_is_cancelled_leaves_nothing(turns: int) -> None:
    live: set[Far] = set()
    connector = Inside(lambda: Far(live), 0.5)
    async with aiohttp.ClientSession(connector=connector) as session:
        for _ in range(5):
            asked = asyncio.ensure_future(session.post("http://hedgerow/x", data=b"{}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            asked.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asked
        await eventually(lambda: len(asyncio.all_tasks()) == 1, "none is being made")
        await eventually(lambda: not live, "all far ends closed")
