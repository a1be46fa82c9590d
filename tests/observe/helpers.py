"""Shared helpers of this folder: bounded waiting, and a list of the writer threads."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

LIMIT_S = 10.0


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop, for at most LIMIT_S."""

    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await main

    uvloop.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another thread changes."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.002)


def until_sync(condition: Callable[[], bool]) -> None:
    """Like `until`, without an event loop."""
    give_up_at = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.002)


def sink_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hedgerow-sink"]
