"""Tickets ordered by a constant key: order, band and rank, compared with a sorted list."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.keyed import KeyedQueue
from policies.queueing.ticket import Ticket
from tests.policies.queueing.helpers import pushed, ticket


def by_tokens(each: Ticket) -> float:
    return float(each.view.prompt_tokens)


def test_an_empty_line() -> None:
    line = KeyedQueue(by_tokens, 1.0)
    assert line.first(0.0) is None
    assert line.band(5, 0.0) == []


def test_the_lowest_key_goes_first_and_ties_go_by_arrival() -> None:
    first, second, third = ticket(tokens=5), ticket(tokens=2), ticket(tokens=5)
    line = KeyedQueue(by_tokens, 0.0)
    pushed(line, [third, second, first])
    order = []
    while (found := line.first(0.0)) is not None:
        order.append(found)
        line.take(found, 0.0)
    assert order == [second, first, third]


def test_a_ticket_that_was_put_back_has_its_old_place() -> None:
    first, second = ticket(tokens=5), ticket(tokens=5)
    line = KeyedQueue(by_tokens, 0.0)
    pushed(line, [first, second])
    line.take(first, 0.0)
    line.push(first, 9.0)
    assert line.first(9.0) is first


def test_the_key_of_a_ticket_is_asked_for_once() -> None:
    asked: list[Ticket] = []

    def key(each: Ticket) -> float:
        asked.append(each)
        return 0.0

    line = KeyedQueue(key, 1.0)
    one, other = ticket(), ticket()
    pushed(line, [one, other])
    line.first(0.0), line.rank(0.0), line.band(9, 0.0), line.within(one, 0.0)
    line.drop(one)
    line.take(other, 0.0)
    assert asked == [one, other]


def test_the_band_ends_at_its_width() -> None:
    tickets = [ticket(tokens=n) for n in (10, 11, 12, 13)]
    line = KeyedQueue(by_tokens, 2.0)
    pushed(line, tickets)
    assert line.band(9, 0.0) == tickets[:3]
    assert line.band(2, 0.0) == tickets[:2]
    assert [line.within(each, 0.0) for each in tickets] == [True, True, True, False]
    line.drop(tickets[0])
    assert line.within(tickets[3], 0.0)
    assert not line.within(tickets[0], 0.0)  # the ticket does not wait here any more
    everything = KeyedQueue(by_tokens, inf)
    pushed(everything, [ticket(tokens=n) for n in (0, 10**9)])
    assert len(everything.band(9, 0.0)) == 2


def test_the_rank_is_the_key_and_the_arrival_of_the_first() -> None:
    line = KeyedQueue(by_tokens, 0.0)
    one = ticket(tokens=7)
    pushed(line, [ticket(tokens=9), one])
    assert line.rank(0.0) == (7.0, float(one.order))


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("pppdt")), max_size=60))
def test_it_is_a_sorted_list(steps: list[tuple[int, str]]) -> None:
    line = KeyedQueue(by_tokens, 1.0)
    waiting: list[Ticket] = []
    for tokens, act in steps:
        if act == "p":
            made = ticket(tokens=tokens)
            line.push(made, 0.0)
            waiting.append(made)
        elif waiting:
            gone = waiting.pop(tokens % len(waiting))
            line.drop(gone) if act == "d" else line.take(gone, 0.0)
        waiting.sort(key=lambda each: (by_tokens(each), each.order))
        assert line.first(0.0) is (waiting[0] if waiting else None)
        band = [t for t in waiting if by_tokens(t) <= by_tokens(waiting[0]) + 1.0]
        assert line.band(64, 0.0) == band
