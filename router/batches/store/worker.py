"""The one thread that touches the disk. It runs calls in the order in which they were requested.

One thread is enough for the speed of disks. Because calls run one after another, the store and the
files need no lock. A long job is a generator and runs one step at a time, so that other jobs run
between its steps, and the event loop gets the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Runs functions in its thread. `close` waits for the functions that were requested before
    it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return or raise the result of `function`. It runs even if the caller is cancelled."""
        future = asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_ignore)
            raise

    async def steps(self, work: Generator[None, None, T]) -> T:
        """Run `work` to its end, one `yield` at a time; it is closed if the caller is cancelled."""
        try:
            while True:
                is_over, result = await self(_step, work)
                if is_over:
                    assert result is not None
                    return result[0]
        finally:
            # Closed in the thread, because the generator may be running there.
            self._thread.submit(work.close)

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _ignore(future: asyncio.Future[T]) -> None:
    """Discard the result, because its caller was cancelled."""
    if not future.cancelled():
        future.exception()


def _step(work: Generator[None, None, T]) -> tuple[bool, tuple[T] | None]:
    try:
        next(work)
    except StopIteration as end:
        return True, (end.value,)
    return False, None
