"""Whether a new request may wait, and which waiting requests are evicted for it."""

from typing import Any

import pytest

from policies.queueing.ticket import WAITING, Ticket
from router.core.errors import Reason
from tests.admission.parts import PATIENT, Parts
from tests.admission.world import every_class
from tests.tickets import make_ticket


def make(**fields: Any) -> Parts:
    return Parts(**{"policy": "fifo", "classes": every_class(**PATIENT), **fields})


def newcomer(parts: Parts, **facts: Any) -> Ticket:
    """A ticket that has joined its flow; no limit was checked yet."""
    ticket = make_ticket(**facts)
    ticket.order = parts.orders.next()
    parts.wait_lists.holders.join(ticket)
    return ticket


@pytest.mark.parametrize(
    ("fields", "facts", "reason"),
    [
        ({}, {}, None),
        ({"limits": {"flow": 2}}, {"key": "k"}, Reason.QUEUE_FLOW_FULL),
        ({"limits": {"flow": 2}}, {"key": "other"}, None),
        ({"classes": {"normal": {"depth": 2}}}, {"key": "other"}, Reason.QUEUE_FULL),
        ({"classes": {"normal": {"depth": 2}}}, {"number": 1.0}, None),
        ({"limits": {"bytes": 250}}, {"body_bytes": 51}, Reason.QUEUE_BYTES_FULL),
        ({"limits": {"bytes": 250}}, {"body_bytes": 50}, None),
    ],
)
def test_which_limit_a_new_request_exceeds(
    fields: dict[str, Any], facts: dict[str, Any], reason: Reason | None
) -> None:
    """Two requests of one flow wait, of 100 bytes each."""
    parts = make(**fields)
    for _ in range(2):
        parts.waits(key="k", body_bytes=100)
    assert parts.evictions.refuses(newcomer(parts, **facts)) == reason


def test_a_larger_flow_is_evicted_and_state_changes_only_then() -> None:
    parts = make(classes={"normal": {"depth": 3}})
    _, _, newest = (parts.waits(key="large") for _ in range(3))
    ticket = newcomer(parts, key="small")
    assert parts.evictions.give_way(ticket) == ([newest], None)
    assert parts.wait_lists.count == 3
    assert newest.state == WAITING
    assert parts.evictions.give_way(ticket) == ([newest], None)


def test_enough_requests_are_evicted_to_free_the_bytes_or_none() -> None:
    parts = make(limits={"bytes": 1000})
    tickets = [parts.waits(key="large", body_bytes=100) for _ in range(10)]
    ticket = newcomer(parts, key="small", body_bytes=250)
    victims, reason = parts.evictions.give_way(ticket)
    assert reason is None
    assert victims == tickets[:-4:-1]  # the three newest tickets
    huge = newcomer(parts, key="small", body_bytes=1001)
    assert parts.evictions.give_way(huge) == ([], Reason.QUEUE_BYTES_FULL)
    assert parts.wait_lists.holders.held == 1000
