"""A class queue that orders tickets by one number per ticket, its key, which does not change.

Must never: compute the key of a ticket twice.
"""

from __future__ import annotations

from collections.abc import Callable

from policies.queueing.base import BaseLine
from policies.queueing.ranked import Ranked
from policies.queueing.ticket import Ticket


class KeyedQueue(BaseLine):
    """The ticket with the lowest key goes first, ties by arrival."""

    __slots__ = ("_key", "_tickets", "_width")

    def __init__(self, key: Callable[[Ticket], float], width: float) -> None:
        """`width`: a ticket may go instead of the first one if its key is at most this much
        higher."""
        self._key = key
        self._width = width
        self._tickets = Ranked()

    def push(self, ticket: Ticket, now: float) -> None:
        self._tickets.add(ticket, self._key(ticket), ticket.order)

    def drop(self, ticket: Ticket) -> None:
        self._tickets.remove(ticket)

    def first(self, now: float) -> Ticket | None:
        found: Ticket | None = self._tickets.first()
        return found

    def rank(self, now: float) -> tuple[float, ...]:
        tickets = self._tickets
        return tickets.first_key(), float(tickets.first_order())

    def band(self, most: int, now: float) -> list[Ticket]:
        tickets = self._tickets
        if not tickets.count:
            return []
        return tickets.leading(most, tickets.first_key() + self._width)

    def within(self, ticket: Ticket, now: float) -> bool:
        entry = ticket.entry
        return entry is not None and entry.key <= self._tickets.first_key() + self._width

    def take(self, ticket: Ticket, now: float) -> None:
        self._tickets.remove(ticket)
