"""First come, first served, regardless of class. It is the baseline for the other orders."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from policies.queueing.contract import Line, OrderPolicy, order_policy
from policies.queueing.keyed import KeyedLine
from policies.queueing.ticket import Ticket


def _arrival(ticket: Ticket) -> float:
    return float(ticket.order)


@order_policy("fifo")
@dataclass(slots=True)
class Fifo(OrderPolicy):
    """By arrival. Any of the first few requests may go first if its prefix is cached."""

    by_class: ClassVar[bool] = False
    by_arrival: ClassVar[bool] = True
    starves: ClassVar[bool] = False

    def line(self, urgency: int) -> Line:
        return KeyedLine(_arrival, inf)
