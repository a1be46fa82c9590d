"""Tickets ordered by a constant key: order, band and rank, compared with a sorted list."""

from hypothesis import given, strategies as st

from policies.queueing.keyed import KeyedQueue
from policies.queueing.ticket import Ticket
from tests.policies.queueing.helpers import pushed, ticket


def by_tokens(each: Ticket) -> float:
    return float(each.view.prompt_tokens)


def test_the_lowest_key_goes_first_and_ties_go_by_arrival() -> None:
    first, second, third = ticket(tokens=5), ticket(tokens=2), ticket(tokens=5)
    line = KeyedQueue(by_tokens, 0.0)
    pushed(line, [third, second, first])
    order = []
    while (found := line.first(0.0)) is not None:
        order.append(found)
        line.take(found, 0.0)
    assert order == [second, first, third]


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
