"""Implements `Scheduler` with the asyncio event loop.

Must never: be used for the deadlines of requests, which the sweep in `wire/sweep.py` checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from router.core.clock import monotonic
from router.core.scheduling import Alarm, Scheduler

_LEAST_S: Final = 0.001  # The unit of the loop's timers, in seconds: a shorter delay is none.


class LoopAlarm(Alarm):
    """A timer of the event loop."""

    __slots__ = ("_act", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        self._loop = loop
        self._act = act
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when: float) -> None:
        self.clear()
        delay_s = when - monotonic()
        delay_s = 0.0 if delay_s <= 0.0 else max(_LEAST_S, delay_s)
        self._handle = self._loop.call_later(delay_s, self._ring)

    def clear(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()

    def _ring(self) -> None:
        self._handle = None
        self._act()


class LoopScheduler(Scheduler):
    """The clock and the timers of a running event loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return monotonic()

    def soon(self, act: Callable[[], None]) -> None:
        self._loop.call_soon(act)

    def alarm(self, act: Callable[[], None]) -> LoopAlarm:
        return LoopAlarm(self._loop, act)
