"""The waiting tickets of one class and lane: which is the oldest, and which entries are kept."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from policies.queueing.keyed import KeyedQueue
from policies.queueing.ticket import Ticket
from router.admission.waiting.class_queue import ClassQueue, Lane
from tests.tickets import make_ticket

PROMOTE_S = 10.0


def by_size(ticket: Ticket) -> float:
    return float(ticket.view.prompt_tokens)


class Waiting:
    """A class queue that serves by size, with methods that add and remove tickets."""

    def __init__(self) -> None:
        self.class_queue = ClassQueue(Lane("m"), 2, KeyedQueue(by_size, 0.0))
        self._order = 0

    def arrives(self, now: float, tokens: int = 1, **facts: Any) -> Ticket:
        self._order += 1
        ticket = make_ticket(arrival=now, tokens=tokens, **facts)
        ticket.order = self._order
        self.class_queue.enter(ticket, now)
        return ticket

    def leaves(self, ticket: Ticket) -> None:
        self.class_queue.line.drop(ticket)
        ticket.class_queue = None
        self.class_queue.left(ticket)

    def returns(self, ticket: Ticket, now: float) -> None:
        self.class_queue.enter(ticket, now)


def test_tickets_with_a_prefix_are_counted() -> None:
    queue = Waiting()
    plain, prefixed = queue.arrives(0.0), queue.arrives(0.0, look=dict)
    assert (queue.class_queue.count, queue.class_queue.looking) == (2, 1)
    queue.leaves(prefixed)
    assert (queue.class_queue.count, queue.class_queue.looking) == (1, 0)
    queue.leaves(plain)
    assert (queue.class_queue.count, queue.class_queue.looking) == (0, 0)


def test_promotion_is_by_age_and_bounded() -> None:
    queue = Waiting()
    tickets = [queue.arrives(float(n)) for n in range(5)]
    assert queue.class_queue.promote(9.0, PROMOTE_S, 99) == 0
    assert queue.class_queue.promote(12.0, PROMOTE_S, 2) == 2
    assert [t.starved for t in tickets] == [True, True, False, False, False]
    assert queue.class_queue.promote(12.0, PROMOTE_S, 99) == 1
    assert queue.class_queue.eldest_young() is tickets[3]
    assert queue.class_queue.eldest_starved() is tickets[0]


def test_the_oldest_starved_ticket_that_may_go_to_a_replica() -> None:
    queue, here, there = Waiting(), object(), object()
    assert queue.class_queue.starved_for(here, 9) is None
    first = queue.arrives(0.0, excluded=(here,))
    second = queue.arrives(0.0, excluded=(here,))
    third = queue.arrives(0.0)
    queue.class_queue.promote(PROMOTE_S, PROMOTE_S, 9)
    assert queue.class_queue.starved_for(there, 9) is first
    assert queue.class_queue.starved_for(here, 9) is third
    assert queue.class_queue.starved_for(here, 2) is None  # only this number of tickets is examined
    queue.leaves(third)
    assert queue.class_queue.starved_for(here, 9) is None
    assert queue.class_queue.starved_for(there, 9) is first
    queue.leaves(first)
    assert queue.class_queue.starved_for(there, 9) is second


@pytest.mark.parametrize("promotes", [0, 5])
def test_entries_of_tickets_that_left_are_not_kept(promotes: int) -> None:
    queue = Waiting()
    stays = queue.arrives(0.0)
    for n in range(1000):
        ticket = queue.arrives(float(n))
        queue.class_queue.promote(float(n), PROMOTE_S, promotes)
        queue.leaves(ticket)
        queue.returns(ticket, float(n))
        queue.leaves(ticket)
        assert queue.class_queue.held() <= 64 + 2 * queue.class_queue.count + 3
    assert queue.class_queue.tickets() == [stays]


STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "arrive", "leave", "return", "promote"]), st.integers()),
    max_size=120,
)


@given(STEPS)
def test_the_oldest_of_each_kind_under_random_operations(steps: list[tuple[str, int]]) -> None:
    queue, waiting, gone, now = Waiting(), list[Ticket](), list[Ticket](), 0.0

    def oldest(of: Callable[[Ticket], bool]) -> Ticket | None:
        return min(filter(of, waiting), key=lambda t: t.order, default=None)

    for act, number in steps:
        now += 1.0
        if act == "arrive":
            waiting.append(queue.arrives(now, tokens=number % 5))
        elif act == "leave" and waiting:
            ticket = waiting.pop(number % len(waiting))
            queue.leaves(ticket)
            gone.append(ticket)
        elif act == "return" and gone:
            ticket = gone.pop(number % len(gone))
            queue.returns(ticket, now)
            waiting.append(ticket)
        elif act == "promote":
            queue.class_queue.promote(now, PROMOTE_S, 1 + number % 3)
        starved = oldest(lambda t: t.starved)
        young = oldest(lambda t: not t.starved)
        assert queue.class_queue.eldest_starved() is starved
        assert queue.class_queue.eldest_young() is young
        assert queue.class_queue.eldest() is (young if starved is None else starved)
        assert queue.class_queue.count == len(waiting)
        assert set(queue.class_queue.tickets()) == set(waiting)
        assert len(queue.class_queue.tickets()) == len(waiting)
