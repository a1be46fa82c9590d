"""The virtual clock and what is to happen on it: no time passes between one event and the next.

Events at one moment happen in the order in which they were asked for. An event cannot be taken
back: whoever asked for it looks, when it comes, whether it still means anything.

Must never: look at a real clock, or go back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

from router.core.scheduling import Alarm, Scheduler

TICK_S: Final = 0.1  # as `wire.sweep`


class Clock:
    """Seconds since the beginning of the traffic. Called, it tells them, as `time.monotonic`."""

    __slots__ = ("_heap", "_order", "events", "holds", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0  # that have happened
        self.holds = 0  # things under way that must come to their end: as long, time goes on
        self._heap: list[tuple[float, int, Callable[[float], object]]] = []
        self._order = 0

    def __call__(self) -> float:
        return self.now

    def at(self, when: float, act: Callable[[float], object]) -> None:
        """Call `act(when)` then."""
        self._order = order = self._order + 1
        heappush(self._heap, (when, order, act))

    def run(self) -> None:
        """Let one event after the other happen as long as something holds.

        Raises RuntimeError for an event that should have been before, or if none is left.
        """
        heap = self._heap
        pop = heappop
        while self.holds:
            if not heap:
                raise RuntimeError("nothing more will happen, and not everything is done")
            when, _, act = pop(heap)
            if when < self.now:
                raise RuntimeError(f"an event of {when} s comes at {self.now} s")
            self.now = when
            self.events += 1
            act(when)


class Timers:
    """What the fleet table takes for its `wire.sweep.Sweeper`: calls parties at their `deadline`.

    The real one looks through them ten times a second, this one comes at the very moment; so a
    party that moves its deadline has to say so by `add`.
    """

    __slots__ = ("_clock", "_due")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Any, float] = {}  # party -> when it is looked at next

    def add(self, party: Any) -> None:
        self._look(party, self._clock.now)

    def discard(self, party: Any) -> None:
        self._due.pop(party, None)

    def _look(self, party: Any, earliest: float) -> None:
        due = max(party.deadline, earliest)
        if self._due.get(party) != due:
            self._due[party] = due
            if due < inf:
                self._clock.at(due, partial(self._call, party))

    def _call(self, party: Any, now: float) -> None:
        if self._due.get(party) != now:
            return  # it was moved, or is not wanted any more
        if party.deadline <= now:
            party.on_deadline(now)
        if self._due.get(party) == now:  # one that does not move is asked again, as by the real one
            self._look(party, now + TICK_S)


class ClockAlarm(Alarm):
    """One call on the clock. A moment that it was moved from passes without a call."""

    __slots__ = ("_act", "_clock", "_due")

    def __init__(self, clock: Clock, act: Callable[[], None]) -> None:
        self._clock = clock
        self._act = act
        self._due = inf

    def set(self, when: float) -> None:
        self._due = due = max(when, self._clock.now)
        self._clock.at(due, self._ring)

    def clear(self) -> None:
        self._due = inf

    def _ring(self, now: float) -> None:
        if self._due == now:
            self._due = inf
            self._act()


class ClockScheduler(Scheduler):
    """The virtual clock, as the queue driver sees it."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now

    def soon(self, act: Callable[[], None]) -> None:
        self._clock.at(self._clock.now, lambda now: act())

    def alarm(self, act: Callable[[], None]) -> ClockAlarm:
        return ClockAlarm(self._clock, act)
