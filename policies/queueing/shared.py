"""The base of the order policies that share service by flow. Each class has its own accounts.

Must never: decide what a request costs.
"""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import mypyc_attr

from policies.queueing.base import OrderPolicy
from policies.queueing.flows import Book, FlowQueue, Tariff
from policies.queueing.ticket import CLASSES, Ticket
from policies.queueing.ticket_queue import TicketQueue
from policies.registry import PolicyConfigError

TOKENS_MAX = 1e9


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedByFlow(OrderPolicy):
    """The base class of `fair`, `round_robin`, `drr` and `dlpm`. The class is compiled, because its
    methods are called for every request that waited.
    """

    __slots__ = ("books",)

    is_fair: ClassVar[bool] = True
    starves: ClassVar[bool] = False  # the virtual time reaches the counter of every flow

    def open_books(self, tariff: Tariff) -> None:
        """Make the accounts. A subclass calls this method once, before any other method."""
        self.books = [Book(tariff) for _ in range(CLASSES)]

    def line(self, urgency: int) -> TicketQueue:
        return FlowQueue(self.books[urgency])

    def passed(self, ticket: Ticket, now: float) -> None:
        self.books[ticket.urgency].passed(ticket)

    def settled(self, ticket: Ticket, tokens: int, output: int) -> None:
        book = self.books[ticket.urgency]
        book.correct(ticket, book.tariff.cost(tokens, output))

    def yields(self, ticket: Ticket) -> bool:
        return self.books[ticket.urgency].yields(ticket)

    def refunded(self, ticket: Ticket) -> None:
        self.books[ticket.urgency].correct(ticket, 0.0)


def check_amount(name: str, value: float, least: float = 0.0) -> None:
    """Raise PolicyConfigError unless `value` is between `least` and `TOKENS_MAX`."""
    if not least <= value <= TOKENS_MAX:
        raise PolicyConfigError(f"{name} must be {least:g} to {TOKENS_MAX:g}", name)


def check_share(name: str, value: float) -> None:
    """Raise PolicyConfigError unless `value` is between 0 and 1."""
    if not 0.0 <= value <= 1.0:
        raise PolicyConfigError(f"{name} must be a share, 0 to 1", name)
