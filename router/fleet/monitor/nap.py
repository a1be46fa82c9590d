"""A pause of a task that other code can end early."""

from __future__ import annotations

import asyncio


class Nap:
    """The pauses of one task."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    async def sleep(self, seconds: float) -> None:
        """Wait for this time, or until `wake` is called."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        # uvloop rounds to milliseconds, also down, and callers sleep until a time has come.
        handle = loop.call_later(seconds + 0.001, self.wake)
        try:
            await waiter
        finally:
            handle.cancel()
            self._waiter = None

    def wake(self) -> None:
        """End the present pause. Without one, nothing happens."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
