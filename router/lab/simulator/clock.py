"""The virtual clock and its scheduled events: time jumps from one event to the next.

Events at the same time run in the order in which they were scheduled. An event cannot be
cancelled: its callback must check whether the event is still relevant.

Must never: read a real clock, or go back in time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

from router.core.scheduling import Alarm, Scheduler

TICK_S: Final = 0.1  # seconds between two checks of the same deadline, as in `wire.sweep`
# Number of time slices per second. With 1,000 replicas a slice has 50 to 100 events.
_PER_S: Final = 64.0
_LAST_S: Final = 1e12  # events after this time (in seconds), or at infinity, are in no slice


# An event: its time, its sequence number, and its callback.
_Event = tuple[float, int, Callable[[float], object]]


class Clock:
    """The current time, in seconds since the beginning of the traffic, and the event queue.

    Calling the clock returns the time, as `time.monotonic` does.

    Events are stored in slices of time (1/64 s). The events of a slice are sorted when it begins.
    Events that are scheduled later for the current slice are stored in a heap, which stays small.
    One heap of all events would take several times as long, because a fleet of 1,000 replicas has
    thousands of future events.
    """

    __slots__ = (
        "_heap",
        "_later",
        "_order",
        "_slice",
        "_slices",
        "_until",
        "events",
        "now",
        "unfinished",
    )

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0  # number of events that have run
        # Number of requests and other tasks that must finish before `run` returns.
        self.unfinished = 0
        self._order = 0
        self._slice: list[_Event] = []  # sorted events of the current slice, the next one last
        self._heap: list[_Event] = []  # events scheduled for the current slice after it began
        self._until = 0.0  # the end of the current slice
        self._later: dict[int, list[_Event]] = {}  # events of later slices, by slice number
        self._slices: list[int] = []  # a heap of the slice numbers in `_later`

    def __call__(self) -> float:
        return self.now

    def at(self, when: float, act: Callable[[float], object]) -> None:
        """Schedule the call `act(when)` at the time `when`."""
        self._order = order = self._order + 1
        if when < self._until or when > _LAST_S:
            heappush(self._heap, (when, order, act))
            return
        number = int(when * _PER_S)
        events = self._later.get(number)
        if events is None:
            self._later[number] = [(when, order, act)]
            heappush(self._slices, number)
        else:
            events.append((when, order, act))

    def run(self) -> None:
        """Run events in order of time until no work is unfinished.

        Raises RuntimeError for an event in the past, or if no event is left.
        """
        while self.unfinished:
            when, _, act = self._take()
            if when < self.now:
                raise RuntimeError(f"an event scheduled for {when} s runs at {self.now} s")
            self.now = when
            self.events += 1
            act(when)

    def _take(self) -> _Event:
        """Remove and return the next event."""
        heap, events = self._heap, self._slice
        while not events and (not heap or heap[0][0] > self._until):
            if not self._slices:
                if heap:
                    break
                raise RuntimeError("no events are left, but work is unfinished")
            number = heappop(self._slices)
            events = self._slice = self._later.pop(number)
            events.sort(reverse=True)
            self._until = (number + 1) / _PER_S
        if events and (not heap or events[-1] < heap[0]):
            return events.pop()
        return heappop(heap)


class Timers:
    """Replaces `wire.sweep.Sweeper` in the fleet table: calls `on_deadline` of registered objects.

    The real sweeper checks the deadlines of all objects ten times a second. This class calls an
    object exactly at its deadline, so an object that changes its deadline must be added again.
    """

    __slots__ = ("_clock", "_due")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Any, float] = {}  # for each registered object, the time of its next check

    def add(self, party: Any) -> None:
        self._schedule(party, self._clock.now)

    def discard(self, party: Any) -> None:
        self._due.pop(party, None)

    def _schedule(self, party: Any, earliest: float) -> None:
        due = max(party.deadline, earliest)
        if self._due.get(party) != due:
            self._due[party] = due
            if due < inf:
                self._clock.at(due, partial(self._call, party))

    def _call(self, party: Any, now: float) -> None:
        if self._due.get(party) != now:
            return  # the object was rescheduled or discarded
        if party.deadline <= now:
            party.on_deadline(now)
        # If the object did not change its deadline, it is called again, as the sweeper does.
        if self._due.get(party) == now:
            self._schedule(party, now + TICK_S)


class ClockAlarm(Alarm):
    """An alarm on the virtual clock. Setting it again replaces the earlier time."""

    __slots__ = ("_act", "_clock", "_due")

    def __init__(self, clock: Clock, act: Callable[[], None]) -> None:
        self._clock = clock
        self._act = act
        self._due = inf

    def set(self, when: float) -> None:
        self._due = due = max(when, self._clock.now)
        self._clock.at(due, self._fire)

    def clear(self) -> None:
        self._due = inf

    def _fire(self, now: float) -> None:
        if self._due == now:
            self._due = inf
            self._act()


class ClockScheduler(Scheduler):
    """The scheduler of the drivers of requests and of the queue, on the virtual clock."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now

    def soon(self, act: Callable[[], None]) -> None:
        self._clock.at(self._clock.now, lambda now: act())

    def alarm(self, act: Callable[[], None]) -> ClockAlarm:
        return ClockAlarm(self._clock, act)
