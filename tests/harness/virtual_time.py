"""An event loop whose clock jumps to the next timer when nothing else is left to do.

A test that runs in it states the shipped durations, 30 s for example, and takes milliseconds. The
clock stands still while the process computes or waits for the CPU, so a busy machine cannot make a
timer fire too early.

The sockets are real sockets of the loopback interface. The kernel delivers bytes, a FIN or a reset
to a local socket before the system call of the sender returns. So an empty `select` shows that no
byte is under way, if both ends are in this process. The loop really waits while a thread works for
it. Must not be used with other processes, signals, or a peer whose kernel buffers fill up: the
kernel's own timers use the real time.

`time.monotonic` is replaced when this module is imported, before the router, which keeps a
reference to it.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

TURN_S = 20e-6  # what one turn of the loop takes
LOOK_S = 0.002  # virtual seconds after which awaited conditions are checked while the loop is busy
LIMIT_S = 7200.0  # virtual seconds of a test
THREAD_S = 30.0  # real seconds within which a thread must answer

_real_monotonic = time.monotonic
_real_time = time.time
_running: _Clock | None = None


class _Clock:
    """The time of one loop."""

    def __init__(self) -> None:
        self.started = self.now = _real_monotonic()
        self._wall = _real_time()

    def wall(self) -> float:
        return self._wall + self.now - self.started


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Advances the clock instead of waiting."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self.clock = clock
        self.loop: asyncio.AbstractEventLoop | None = None
        self.working = 0  # calls that threads run for the loop
        self._looks_at = 0.0
        self.awaited: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.clock.now += TURN_S
        ready = super().select(0)
        is_idle = not ready and (timeout is None or timeout > 0)
        if is_idle or self.clock.now >= self._looks_at:
            self._looks_at = self.clock.now + LOOK_S
            if self._fulfil():
                return ready
        if not is_idle:
            return ready
        if self.working:
            ready = super().select(THREAD_S)
            assert ready, "a thread does not answer"
            return ready
        assert timeout is not None, (
            f"without a timer, nothing can happen: {asyncio.all_tasks(self.loop)}"
        )
        self.clock.now += max(0.0, timeout - TURN_S)
        return []

    def _fulfil(self) -> bool:
        """Wake the tasks whose condition holds; return whether one does."""
        woken = False
        for future, condition in self.awaited.items():
            try:
                if not future.done() and condition():
                    future.set_result(None)
                    woken = True
            except Exception as err:
                future.set_exception(err)
                woken = True
        return woken


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop."""

    def __init__(self) -> None:
        self.clock = _Clock()
        self._jumps = _Selector(self.clock)
        self._jumps.loop = self
        super().__init__(self._jumps)

    def time(self) -> float:
        return self.clock.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        return self.wait_for_thread(super().run_in_executor(executor, func, *args))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds. It is checked before every jump of the clock."""
        if not condition():
            future = self.create_future()
            self._jumps.awaited[future] = condition
            try:
                await future
            finally:
                del self._jumps.awaited[future]

    def wait_for_thread(self, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Let the clock stand still until a thread has set the result of `future`."""
        self._jumps.working += 1
        future.add_done_callback(self._worked)
        return future

    async def shutdown_default_executor(self) -> None:
        self._jumps.working += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._jumps.working -= 1

    def _worked(self, _: asyncio.Future[Any]) -> None:
        self._jumps.working -= 1


def monotonic() -> float:
    return _real_monotonic() if _running is None else _running.now


def is_virtual() -> bool:
    """Whether a loop with a virtual clock runs."""
    return _running is not None


def at_most(seconds: float) -> float:
    """The time limit of a wait that ends long before, in seconds of the running loop."""
    return LIMIT_S if is_virtual() else seconds


@contextmanager
def takes(seconds: float, late_s: float = 0.25) -> Iterator[None]:
    """Check that the block takes this virtual time; `late_s`: the sweep of the deadlines, and a
    turn for each of their effects.
    """
    began = monotonic()
    yield
    took = monotonic() - began
    assert seconds - late_s <= took <= seconds + late_s, f"{took:.3f} s instead of {seconds} s"


def run_virtual(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end in a loop with a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        with _in_force(loop):
            runner.run(main)


@contextmanager
def _in_force(loop: VirtualLoop) -> Iterator[None]:
    """Let the router and the tests read the clock of this loop."""
    global _running
    from router.core import clock as router_clock

    def wrap_future(future: Future[Any]) -> asyncio.Future[Any]:
        return loop.wait_for_thread(asyncio.futures.wrap_future(future, loop=loop))

    before = time.time, router_clock.wall, asyncio.wrap_future
    _running = loop.clock
    time.time = router_clock.wall = loop.clock.wall
    asyncio.wrap_future = wrap_future  # type: ignore[assignment]
    try:
        yield
    finally:
        _running = None
        time.time, router_clock.wall, asyncio.wrap_future = before


time.monotonic = monotonic
