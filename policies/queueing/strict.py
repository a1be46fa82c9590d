"""The most urgent request always goes first; less urgent requests wait while it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.queueing.contract import OrderPolicy, PolicyConfigError, TicketQueue, order_policy
from policies.queueing.keyed import KeyedQueue
from policies.queueing.ticket import Ticket


def _level(ticket: Ticket) -> float:
    return ticket.number


@order_policy("strict")
@dataclass(slots=True)
class Strict(OrderPolicy):
    """The most urgent ticket goes first, ties by arrival."""

    by_class: ClassVar[bool] = False

    # A cached prefix decides among requests whose urgency differs by at most this many levels.
    # Several requests of one user differ by less.
    width: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.width <= 1.0:
            raise PolicyConfigError("width must be a part of a level, 0 to 1", "width")

    def line(self, urgency: int) -> TicketQueue:
        return KeyedQueue(_level, self.width)
