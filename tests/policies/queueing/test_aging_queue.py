"""Waiting tickets ordered by urgency and age: max(ceiling, number - rate * age)."""

from hypothesis import given, strategies as st

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


def test_at_the_ceiling_only_the_arrival_counts() -> None:
    first, second = ticket(number=4.0, arrival=0.0), ticket(number=2.0, arrival=0.0)
    line = pushed(a_queue(), [first, second])
    assert line.first(4.0) is second  # the second ticket is at the ceiling; the first is at 3
    assert line.first(11.9) is second
    assert line.first(12.0) is first  # both tickets are at the ceiling now


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
