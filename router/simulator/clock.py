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
_PER_S: Final = 64.0  # slices in a second: of a fleet of 1,000 replicas, 50 to 100 events each
_LAST_S: Final = 1e12  # events after this moment, or never, are in no slice


# When, the number of the request for it, and what is called then.
_Event = tuple[float, int, Callable[[float], object]]


class Clock:
    """Seconds since the beginning of the traffic. Called, it tells them, as `time.monotonic`.

    Events are kept by slices of time. A slice is sorted when it begins; what is asked for within
    the slice under way goes to a heap, which stays small. One heap of all events takes several
    times as long: a fleet of 1,000 replicas has thousands of events ahead.
    """

    __slots__ = (
        "_ahead",
        "_heap",
        "_order",
        "_slice",
        "_slices",
        "_until",
        "events",
        "holds",
        "now",
    )

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0  # that have happened
        self.holds = 0  # things under way that must come to their end: as long, time goes on
        self._order = 0
        self._slice: list[_Event] = []  # of the slice under way, the next one last
        self._heap: list[_Event] = []  # ... and those that were asked for since it began
        self._until = 0.0  # its end
        self._ahead: dict[int, list[_Event]] = {}  # of later slices, by number
        self._slices: list[int] = []  # the heap of these numbers

    def __call__(self) -> float:
        return self.now

    def at(self, when: float, act: Callable[[float], object]) -> None:
        """Call `act(when)` then."""
        self._order = order = self._order + 1
        if when < self._until or when > _LAST_S:
            heappush(self._heap, (when, order, act))
            return
        number = int(when * _PER_S)
        events = self._ahead.get(number)
        if events is None:
            self._ahead[number] = [(when, order, act)]
            heappush(self._slices, number)
        else:
            events.append((when, order, act))

    def run(self) -> None:
        """Let one event after the other happen as long as something holds.

        Raises RuntimeError for an event that should have been before, or if none is left.
        """
        while self.holds:
            when, _, act = self._take()
            if when < self.now:
                raise RuntimeError(f"an event of {when} s comes at {self.now} s")
            self.now = when
            self.events += 1
            act(when)

    def _take(self) -> _Event:
        """Take the next event away."""
        heap, events = self._heap, self._slice
        while not events and (not heap or heap[0][0] > self._until):
            if not self._slices:
                if heap:
                    break
                raise RuntimeError("nothing more will happen, and not everything is done")
            number = heappop(self._slices)
            events = self._slice = self._ahead.pop(number)
            events.sort(reverse=True)
            self._until = (number + 1) / _PER_S
        if events and (not heap or events[-1] < heap[0]):
            return events.pop()
        return heappop(heap)


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
