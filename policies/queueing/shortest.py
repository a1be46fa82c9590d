"""The shortest job goes first, by uncached prompt tokens and predicted output tokens.

This order has the lowest mean wait and is the most unfair. A long request goes only if no shorter
one waits, or if it is starving: the queue serves starving tickets.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.queueing.contract import OrderPolicy, TicketQueue, order_policy
from policies.queueing.keyed import KeyedQueue
from policies.queueing.shared import check_amount
from policies.queueing.ticket import Ticket


@order_policy("shortest")
@dataclass(slots=True)
class Shortest(OrderPolicy):
    """The ticket with the lowest predicted cost goes first, within each class."""

    input: float = 1.0  # The cost of an uncached prompt token.
    output: float = 2.0  # The cost of an output token.
    # A cached prefix decides among requests whose costs differ by at most this.
    width: float = 1024.0

    def __post_init__(self) -> None:
        for option in ("input", "output", "width"):
            check_amount(option, getattr(self, option))

    def line(self, urgency: int) -> TicketQueue:
        return KeyedQueue(self._cost, self.width)

    def _cost(self, ticket: Ticket) -> float:
        return self.input * ticket.view.prompt_tokens + self.output * ticket.view.output_tokens
