"""Tickets: their place in an order policy's queue, their replica, and a new ticket's values."""

from math import inf

from hypothesis import given, strategies as st

from policies.queueing.ticket import NEW, NOT_CHARGED, Entry, Item
from tests.tickets import make_ticket

KEYS = st.sampled_from([-inf, -1.0, 0.0, 0.5, 1.0, inf])
PLACES = st.tuples(KEYS, st.integers(0, 3))


@given(PLACES, PLACES)
def test_entries_are_ordered_by_key_and_then_by_arrival(
    a: tuple[float, int], b: tuple[float, int]
) -> None:
    first, second = Entry(*a, Item()), Entry(*b, Item())
    assert first.is_before(second) == (a < b)
    assert (first < second) == (a < b)


def test_a_new_ticket_has_no_history() -> None:
    ticket = make_ticket()
    assert (ticket.state, ticket.order, ticket.skips) == (NEW, 0, 0)
    assert (ticket.starved, ticket.has_early_status) == (False, False)
    assert ticket.charged == NOT_CHARGED < 0.0  # a charge may be 0
    for name in ("class_queue", "node", "party", "run", "prefix", "queue", "entry"):
        assert getattr(ticket, name) is None, name
    assert ticket.deadline == inf
    assert ticket.excluded == ()
