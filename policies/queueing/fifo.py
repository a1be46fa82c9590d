"""First come, first served, regardless of class. This order is the baseline for the others."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from policies.queueing.contract import OrderPolicy, TicketQueue, order_policy
from policies.queueing.keyed import KeyedQueue
from policies.queueing.ticket import Ticket


def _arrival(ticket: Ticket) -> float:
    return float(ticket.order)


@order_policy("fifo")
@dataclass(slots=True)
class Fifo(OrderPolicy):
    """Requests go in the order of arrival. One of the first few requests may go first if its prefix
    is cached."""

    by_class: ClassVar[bool] = False
    by_arrival: ClassVar[bool] = True
    starves: ClassVar[bool] = False

    def line(self, urgency: int) -> TicketQueue:
        return KeyedQueue(_arrival, inf)
