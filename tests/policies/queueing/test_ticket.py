"""Tickets: their place in an order policy's queue, their replica, and a new ticket's values."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.run import Run
from policies.queueing.ticket import CLASSES, NEW, NOT_CHARGED, Entry, Item
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


def test_a_new_item_is_in_no_line() -> None:
    assert Item().entry is None
    assert make_ticket().entry is None


def test_a_new_ticket_has_no_history() -> None:
    ticket = make_ticket()
    assert (ticket.state, ticket.order, ticket.skips) == (NEW, 0, 0)
    assert (ticket.starved, ticket.has_early_status) == (False, False)
    assert ticket.charged == NOT_CHARGED < 0.0  # a charge may be 0
    for name in ("class_queue", "node", "party", "run", "prefix", "queue", "entry"):
        assert getattr(ticket, name) is None, name
    assert ticket.deadline == inf
    assert ticket.excluded == ()


@pytest.mark.parametrize(
    ("model", "lane", "expected"),
    [("m", None, "m"), ("m", "pinned", "pinned"), ("", None, ""), ("m", "", "")],
)
def test_a_lane_is_the_model_unless_another_one_is_given(
    model: str, lane: str | None, expected: str
) -> None:
    assert make_ticket(model=model, lane=lane).lane == expected


@given(st.floats(-1e6, 1e6))
def test_every_number_has_a_class(number: float) -> None:
    urgency = make_ticket(number=number).urgency
    assert 0 <= urgency < CLASSES
    if 0.0 <= number < 4.5:
        assert abs(number - urgency) <= 0.5


def test_its_replica_is_that_of_its_run() -> None:
    ticket, replica = make_ticket(), object()
    assert ticket.place is None
    ticket.run = Run()
    assert ticket.place is None
    ticket.run.begin(replica, 5.0, True, 5.0)
    assert ticket.place is replica
    ticket.run.end(7.0)
    assert ticket.place is None
    assert ticket.run.ran_s == 2.0


def test_reservations_count_prompt_and_output() -> None:
    assert make_ticket(tokens=100, output=10).reserved == 110
    assert make_ticket(tokens=0, output=0).reserved == 0


class KeyQueue:
    def __init__(self, is_blocked: bool) -> None:
        self.is_blocked = is_blocked


def test_a_ticket_is_blocked_only_in_the_queue_of_its_key() -> None:
    ticket = make_ticket()
    assert ticket.blocked_in is None
    ticket.class_queue = KeyQueue(False)
    assert ticket.blocked_in is None
    ticket.class_queue = its = KeyQueue(True)
    assert ticket.blocked_in is its


@pytest.mark.parametrize(
    ("number", "urgency"),
    [(0.0, 0), (0.49, 0), (0.5, 1), (2.0, 2), (3.5, 4), (4.0, 4), (9.0, 4), (-3.0, 0)],
)
def test_a_class_is_the_nearest_number(number: float, urgency: int) -> None:
    assert make_ticket(number=number).urgency == urgency < CLASSES


def test_a_ticket_keeps_what_it_was_told() -> None:
    ticket = make_ticket(model="m", tokens=100, output=10)
    assert (ticket.lane, ticket.reserved, ticket.number) == ("m", 110, 2.0)
    assert make_ticket(model="m", lane="pinned").lane == "pinned"
    assert make_ticket().deadline == inf
