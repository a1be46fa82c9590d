"""A third party's order: plain Python, registered by name, driven by the queue like the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from policies.queueing.contract import QUEUEING, Line, OrderPolicy, make_order, order_policy
from policies.queueing.ticket import Ticket
from tests.admission.world import Spot, World, config


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten after it."""
    QUEUEING.names()
    monkeypatch.setattr(QUEUEING, "classes", dict(QUEUEING.classes))
    yield


class LatestFirst:
    """A stack."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def push(self, ticket: Ticket, now: float) -> None:
        self.tickets.append(ticket)
        self.tickets.sort(key=lambda each: -each.order)

    def drop(self, ticket: Ticket) -> None:
        self.tickets.remove(ticket)

    def first(self, now: float) -> Ticket | None:
        return self.tickets[0] if self.tickets else None

    def rank(self, now: float) -> tuple[float, ...]:
        return (-float(self.tickets[0].order),)

    def band(self, most: int, now: float) -> list[Ticket]:
        return self.tickets[:most]

    def within(self, ticket: Ticket, now: float) -> bool:
        return True

    def take(self, ticket: Ticket, now: float) -> None:
        self.tickets.remove(ticket)


def test_the_queue_drives_a_strangers_policy() -> None:
    @order_policy("latest")
    @dataclass(slots=True)
    class Latest(OrderPolicy):
        by_class: ClassVar[bool] = False

        def line(self, urgency: int) -> Line:
            return LatestFirst()

    assert isinstance(make_order("latest"), Latest)
    world = World([Spot("a")], config(policy="latest", gates={"prefill_tokens": 0}))
    tickets = [world.come(tokens=1000, output=10) for _ in range(10)]
    world.run(20.0)
    assert world.order == tickets[:3] + tickets[:2:-1]
    world.assert_empty()


def test_two_orders_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="fifo"):
        order_policy("fifo")(OrderPolicy)
