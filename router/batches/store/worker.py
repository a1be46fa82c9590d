"""Runs the disk operations of one part of the program in one thread, in the order of the calls.

One thread is fast enough for a disk. Because calls run one after the other, the store and the files
need no lock. A long operation is a generator and runs one step at a time. Other operations and the
event loop can run between two steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Runs functions in its thread. `close` waits for all functions that were passed before."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `function`, even if the caller is cancelled. Returns or raises its result."""
        future = asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_ignore)
            raise

    async def steps(self, work: Generator[None, None, T]) -> T:
        """Runs the generator `work` to its end, one step at a time. Returns its result.

        If the caller is cancelled, `work` is closed.
        """
        try:
            while True:
                is_over, result = await self(_step, work)
                if is_over:
                    assert result is not None
                    return result[0]
        finally:
            # The generator is closed in the thread, because it may be running there.
            self._thread.submit(work.close)

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _ignore(future: asyncio.Future[T]) -> None:
    """Discards the result of a function, because its caller was cancelled."""
    if not future.cancelled():
        future.exception()


def _step(work: Generator[None, None, T]) -> tuple[bool, tuple[T] | None]:
    try:
        next(work)
    except StopIteration as end:
        return True, (end.value,)
    return False, None
