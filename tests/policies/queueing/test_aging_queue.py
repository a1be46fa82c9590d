"""Waiting tickets ordered by urgency and age: max(ceiling, number - rate * age)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.aging_queue import AgingQueue
from policies.queueing.ticket import Ticket
from tests.policies.queueing.helpers import pushed, ticket

# Binary fractions, so that sums are exact.
RATE, CEILING, WIDTH = 0.25, 1.0, 0.5


def level(each: Ticket, now: float) -> float:
    if each.number <= CEILING:
        return each.number
    return max(CEILING, each.number - RATE * (now - each.arrival))


def in_order(waiting: list[Ticket], now: float) -> list[Ticket]:
    return sorted(waiting, key=lambda each: (level(each, now), each.order))


def a_queue() -> AgingQueue:
    return AgingQueue(RATE, CEILING, WIDTH)


def test_an_empty_line() -> None:
    line = a_queue()
    assert line.first(5.0) is None
    assert line.band(5, 5.0) == []


def test_age_passes_urgency_after_the_time_of_the_difference() -> None:
    old, new = ticket(number=3.0, arrival=0.0), ticket(number=2.0, arrival=3.75)
    line = pushed(a_queue(), [old, new])
    assert line.first(4.0) is new
    newer = ticket(number=2.0, arrival=4.25)
    line.drop(new)
    line.push(newer, 4.25)
    assert line.first(4.25) is old


def test_at_the_ceiling_only_the_arrival_counts() -> None:
    first, second = ticket(number=4.0, arrival=0.0), ticket(number=2.0, arrival=0.0)
    line = pushed(a_queue(), [first, second])
    assert line.first(4.0) is second  # the second ticket is at the ceiling; the first is at 3
    assert line.first(11.9) is second
    assert line.first(12.0) is first  # both tickets are at the ceiling now


def test_a_number_above_the_ceiling_stays_before_all_that_aged() -> None:
    old, urgent = ticket(number=4.0, arrival=0.0), ticket(number=0.5, arrival=1000.0)
    line = pushed(a_queue(), [old, urgent])
    assert line.first(1000.0) is urgent
    assert line.rank(1000.0) == (0.5, float(urgent.order))


def test_the_rank_is_the_level_now() -> None:
    one = ticket(number=3.0, arrival=2.0)
    line = pushed(a_queue(), [one])
    assert line.rank(4.0) == (2.5, float(one.order))
    assert line.rank(400.0) == (CEILING, float(one.order))


def test_a_queue_that_does_not_age_goes_by_number() -> None:
    line = AgingQueue(0.0, CEILING, 0.0)
    old, new = ticket(number=3.0, arrival=0.0), ticket(number=2.0, arrival=900.0)
    pushed(line, [old, new])
    assert line.first(1e6) is new


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "drop", "take"]),
        st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0]),
        st.sampled_from([0.0, 0.5, 2.0, 8.0]),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_order_is_that_of_the_formula(steps: list[tuple[str, float, float]]) -> None:
    line, waiting, now = a_queue(), list[Ticket](), 0.0
    for act, number, after_s in steps:
        now += after_s
        if act == "push":
            made = ticket(number=number, arrival=now)
            line.push(made, now)
            waiting.append(made)
        elif waiting:
            gone = waiting.pop(int(number * 2) % len(waiting))
            line.drop(gone) if act == "drop" else line.take(gone, now)
        expected = in_order(waiting, now)
        assert line.first(now) is (expected[0] if expected else None)
        if not expected:
            continue
        best = level(expected[0], now)
        assert line.rank(now) == (best, float(expected[0].order))
        band = line.band(64, now)
        assert band == [t for t in expected if t in band]
        assert all(level(each, now) <= best + WIDTH for each in band)
        assert [each for each in expected if line.within(each, now)] == band


@pytest.mark.parametrize("act", ["drop", "take"])
def test_a_ticket_may_leave_before_and_after_it_is_ripe(act: str) -> None:
    line = a_queue()
    young, ripe, later = (ticket(number=3.0, arrival=0.0) for _ in range(3))
    pushed(line, [young, ripe, later])
    line.drop(young) if act == "drop" else line.take(young, 0.0)
    assert line.first(100.0) is ripe
    line.drop(ripe) if act == "drop" else line.take(ripe, 100.0)
    assert line.first(100.0) is later
    assert young.node is ripe.node is None
