"""The virtual clock: order, ties, and when it stops."""

from functools import partial
from math import inf
from random import Random

import pytest

from router.lab.simulator.clock import Clock, Timers


def test_events_come_by_time_and_ties_in_the_order_they_were_asked_for() -> None:
    clock = Clock()
    seen: list[tuple[str, float]] = []

    def note(name: str, now: float) -> None:
        seen.append((name, now))
        clock.unfinished -= 1

    for name, when in (("c", 2.0), ("a", 1.0), ("d", 2.0), ("b", 1.0)):
        clock.unfinished += 1
        clock.at(when, partial(note, name))
    clock.run()
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 2.0), ("d", 2.0)]
    assert clock() == clock.now == 2.0
    assert clock.events == 4


def test_every_event_comes_in_its_order_however_far_ahead_it_was_asked_for() -> None:
    rng = Random(1)
    clock = Clock()
    due: list[tuple[float, int]] = []  # (time, index) of all scheduled calls
    seen: list[tuple[float, int]] = []

    def ask() -> None:
        # Times: now, in the same slice of time, at the end of a slice, and seconds ahead.
        pause = rng.choice((0.0, rng.random() / 500, rng.randrange(4) / 64, 5.0 * rng.random()))
        when = clock.now + pause if rng.random() < 0.9 else (int(clock.now * 64) + 1) / 64
        due.append((when, len(due)))
        clock.unfinished += 1
        clock.at(when, partial(happen, len(due) - 1))

    def happen(number: int, now: float) -> None:
        seen.append((now, number))
        clock.unfinished -= 1
        for _ in range(rng.choice((0, 1, 2, 2)) if len(due) < 12_000 else 0):
            ask()

    for _ in range(50):
        ask()
    clock.at(inf, partial(happen, -1))
    clock.run()
    assert len(seen) == len(due) > 10_000
    assert seen == sorted(due)


def test_it_goes_on_only_while_something_holds() -> None:
    clock = Clock()
    ticks = []

    def tick(now: float) -> None:
        ticks.append(now)
        clock.at(now + 1.0, tick)

    def end(now: float) -> None:
        clock.unfinished -= 1

    clock.unfinished = 1
    clock.at(0.0, tick)
    clock.at(2.5, end)
    clock.run()
    assert ticks == [0.0, 1.0, 2.0]


def test_a_run_that_could_never_end_and_an_event_in_the_past_are_errors() -> None:
    clock = Clock()
    clock.unfinished = 1
    clock.at(1.0, lambda now: clock.at(0.5, lambda now: None))
    with pytest.raises(RuntimeError, match=r"an event scheduled for 0\.5 s runs at 1\.0 s"):
        clock.run()
    clock = Clock()
    clock.unfinished = 1
    with pytest.raises(RuntimeError, match="no events are left"):
        clock.run()


class Party:
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.called: list[float] = []
        self.next = inf

    def on_deadline(self, now: float) -> None:
        self.called.append(now)
        self.deadline = self.next


def run_until(clock: Clock, end: float) -> None:
    def stop(now: float) -> None:
        clock.unfinished -= 1

    clock.unfinished += 1
    clock.at(end, stop)
    clock.run()


def test_a_party_is_called_at_its_deadline_wherever_it_moves() -> None:
    clock = Clock()
    timers = Timers(clock)
    later, sooner, gone = Party(1.0), Party(5.0), Party(1.0)
    for party in (later, sooner, gone):
        timers.add(party)
    timers.discard(gone)
    later.deadline, sooner.deadline = 4.0, 2.0
    timers.add(later)
    timers.add(sooner)
    run_until(clock, 10.0)
    assert (later.called, sooner.called, gone.called) == ([4.0], [2.0], [])


def test_a_party_that_adds_itself_again_goes_on_from_there() -> None:
    clock = Clock()
    timers = Timers(clock)

    class Again(Party):
        def on_deadline(self, now: float) -> None:
            self.called.append(now)
            self.deadline = now + 1.0
            timers.add(self)

    party = Again(1.0)
    timers.add(party)
    run_until(clock, 3.5)
    assert party.called == [1.0, 2.0, 3.0]
