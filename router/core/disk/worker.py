"""Runs the disk operations of one part of the program in one thread, in the order of the calls.

One thread is fast enough for a disk. Because calls run one after the other, the store and the files
need no lock. A long operation is a generator and runs one step at a time. Other operations and the
event loop can run between two steps.

The end of the process does not wait for the thread, because a disk may never answer. `close` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Runs functions in its thread. `close` waits for all functions that were passed before."""

    def __init__(self, name: str) -> None:
        # The calls that wait for the thread; `None` ends the thread.
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        # Not a ThreadPoolExecutor, because the end of the process waits for the threads of one.
        self._thread = Thread(target=_run, args=(self._calls,), name=name, daemon=True)
        self._is_closed = False

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `function`, even if the caller is cancelled. Returns or raises its result."""
        future = asyncio.wrap_future(self._submit(partial(function, *args, **kwargs)))
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
            self._submit(work.close)

    def close(self) -> None:
        """Waits until the thread has called all functions, and ends it."""
        self._end()
        if self._thread.ident is not None:
            self._thread.join()

    def abandon(self, last: Callable[[], object]) -> None:
        """Closes the worker without waiting. The thread calls `last` after all other functions."""
        self._submit(last)
        self._end()

    def _submit(self, function: Callable[[], T]) -> Future[T]:
        if self._is_closed:
            raise RuntimeError("the worker is closed")
        if self._thread.ident is None:
            self._thread.start()
        future: Future[T] = Future()
        self._calls.put((future, function))
        return future

    def _end(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._calls.put(None)


def _run(calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (call := calls.get()) is not None:
        future, function = call
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except BaseException as err:
                future.set_exception(err)
        del call, future, function  # A waiting thread must not keep a result alive.


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
