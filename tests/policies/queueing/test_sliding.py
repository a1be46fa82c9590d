"""The sliding boundary: urgent before normal before lost, against the rule itself."""

from math import inf
from typing import Any

import pytest
from hypothesis import given, strategies as st

from policies.queueing.deadlines import due
from policies.queueing.sliding import SlidingQueue, Slope
from policies.queueing.ticket import Ticket
from tests.policies.queueing.helpers import pushed, ticket


def a_slope(**changes: Any) -> Slope:
    return Slope(
        **{
            "prefill_rate": 1000.0,
            "base_s": 0.05,
            "eagerness": 1.0,
            "lateness": 1.0,
            "width": 0.0,
            **changes,
        }
    )


# -- the slope --------------------------------------------------------------------------------


def test_the_boundary_is_the_work_of_each_replica() -> None:
    slope = a_slope(base_s=0.0)
    slope.work_s = 12.0
    assert slope.boundary_s(5.0) == 12.0
    slope.replicas = 4
    assert slope.boundary_s(5.0) == 3.0
    slope.eagerness = 2.0
    assert slope.boundary_s(5.0) == 6.0


# -- the queue --------------------------------------------------------------------------------


def test_lost_tickets_go_last_and_by_deadline_whatever_they_are_worth() -> None:
    slow, quick = ticket(tokens=500, arrival=0.0), ticket(tokens=1, arrival=0.5)
    line = pushed(SlidingQueue(a_slope()), [slow, quick])
    assert line.first(3.0) is quick
    assert line.first(4.2) is quick  # the other one is lost
    assert line.first(5.0) is slow  # both are
    late = ticket(tokens=2000, arrival=4.9)
    line.push(late, 5.0)
    assert line.first(5.0) is late


def test_the_work_of_lost_tickets_is_not_that_of_others() -> None:
    slope = a_slope()
    line = SlidingQueue(slope)
    lost = ticket(tokens=1000, arrival=0.0)
    line.push(lost, 0.0)
    line.first(100.0)
    assert slope.work_s == pytest.approx(0.0, abs=1e-9)
    line.push(ticket(tokens=2000, arrival=100.0), 100.0)
    line.drop(lost)
    assert slope.work_s == pytest.approx(2.0, abs=0.01)


def test_a_ticket_that_is_put_back_again_and_again_costs_no_memory() -> None:
    """A ticket leaves and enters its queue whenever the free places of its key change."""
    line = SlidingQueue(a_slope())
    one, other = ticket(tokens=100, arrival=0.0), ticket(tokens=100, arrival=0.0)
    line.push(other, 0.0)
    for _ in range(1000):
        line.push(one, 0.0)
        assert len(line._losing.entries) <= 64 + 2 * 2 + 1
        assert len(line._due.entries) <= 64 + 2 * 2 + 1
        line.drop(one)
    line.push(one, 0.0)
    assert line.first(1.0) is one
    assert line.first(100.0) is one  # lost, and first by arrival
    line.take(one, 100.0)
    assert line.first(100.0) is other


def test_a_band_of_urgent_tickets_is_a_share_of_the_worth() -> None:
    slope = a_slope(width=0.5)
    slope.work_s = 1e6
    near, best, far = ticket(tokens=1500), ticket(tokens=1000), ticket(tokens=5000)
    line = pushed(SlidingQueue(slope), [near, best, far])
    assert line.band(9, 0.0) == [best, near]
    assert [line.within(each, 0.0) for each in (best, near, far)] == [True, True, False]
    assert line.band(1, 0.0) == [best]


def test_a_band_of_normal_tickets_is_a_share_of_the_class() -> None:
    line = SlidingQueue(a_slope(width=0.5))
    tickets = [ticket(tokens=0, arrival=at) for at in (0.0, 1.0, 1.25)]
    pushed(line, tickets, 1.25)
    assert line.band(9, 1.25) == tickets[:2]


def expected_first(waiting: list[Ticket], slope: Slope, now: float) -> Ticket | None:
    """The rule, from all waiting tickets anew."""

    def is_lost(each: Ticket) -> bool:
        late_s = slope.lateness * each.view.ttft_slo_usual_s
        return due(each) + late_s - slope.prefill_s(each) <= now

    def worth(each: Ticket) -> float:
        return each.view.worth * each.flow.weight / slope.prefill_s(each)

    if not waiting:
        return None
    hopeful = [each for each in waiting if not is_lost(each)]
    if not hopeful:
        return min(waiting, key=lambda each: (due(each), each.order))
    until = now + slope.boundary_s(min(map(due, hopeful)) - now)
    urgent = [each for each in hopeful if due(each) < until]
    if urgent:
        return min(urgent, key=lambda each: (-worth(each), each.order))
    return min(hopeful, key=lambda each: (due(each), each.order))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "push", "push", "first", "drop"]),
            st.integers(0, 3000),
            st.sampled_from([0.0, 0.25, 1.0]),
            st.sampled_from([inf, 0.75, 1.5]),
            st.sampled_from([None, 0.6, 3.0]),
        ),
        max_size=40,
    ),
    st.integers(1, 8),
)
def test_the_first_ticket_is_that_of_the_rule(
    steps: list[tuple[str, int, float, float, float | None]], replicas: int
) -> None:
    slope = a_slope()
    slope.replicas = replicas
    line, waiting, now = SlidingQueue(slope), list[Ticket](), 0.0
    for act, tokens, after_s, deadline_s, slo_s in steps:
        now += after_s
        if act == "push":
            until = now + deadline_s
            made = ticket(tokens=tokens, arrival=now, deadline=until, ttft_slo_s=slo_s)
            line.push(made, now)
            waiting.append(made)
        elif waiting and act == "drop":
            line.drop(waiting.pop(tokens % len(waiting)))
        elif waiting:
            found = line.first(now)
            assert found is not None
            line.take(found, now)
            waiting.remove(found)
        assert line.first(now) is expected_first(waiting, slope, now)
        assert line.first(now) is line.first(now)
