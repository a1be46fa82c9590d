"""A class queue ordered by urgency and age: every second of waiting makes a ticket a little more
urgent.

All tickets age at the same rate, so their order does not change while they age. The constant key
`number + rate * arrival` gives that order. A ticket that has reached the ceiling does not become
more urgent. Such a ticket is moved to a second list (`_ripe`) and ordered by its arrival. The
lowest key of the first list shows whether a ticket must be moved.

Must never: examine tickets that need not be moved.
"""

from __future__ import annotations

from policies.queueing.base import BaseLine
from policies.queueing.ranked import Ranked
from policies.queueing.ticket import Ticket


class AgingQueue(BaseLine):
    """The ticket with the lowest max(ceiling, number - rate * age) goes first, ties by arrival."""

    __slots__ = ("_ceiling", "_rate", "_ripe", "_unripe", "_width")

    def __init__(self, rate: float, ceiling: float, width: float) -> None:
        """`rate`: levels per second. `ceiling`: the level up to which age counts. `width`: a ticket
        may go instead of the first one if its level is at most this much higher.
        """
        self._rate = rate
        self._ceiling = ceiling
        self._width = width
        # Tickets that have reached the ceiling, or are more urgent by their number. Their key in
        # `_ripe` is the level.
        self._ripe = Ranked()
        self._unripe = Ranked()  # The other tickets, by level + rate * arrival.

    def push(self, ticket: Ticket, now: float) -> None:
        if ticket.number <= self._ceiling:
            ticket.node = self._ripe
            self._ripe.add(ticket, ticket.number, ticket.order)
        else:
            ticket.node = self._unripe
            self._unripe.add(ticket, ticket.number + self._rate * ticket.arrival, ticket.order)

    def drop(self, ticket: Ticket) -> None:
        row: Ranked = ticket.node
        ticket.node = None
        row.remove(ticket)

    def take(self, ticket: Ticket, now: float) -> None:
        self.drop(ticket)

    def _ripen(self, now: float) -> None:
        unripe, ceiling = self._unripe, self._ceiling
        until = ceiling + self._rate * now
        while unripe.count and unripe.first_key() <= until:
            ticket: Ticket = unripe.first()
            unripe.remove(ticket)
            ticket.node = self._ripe
            self._ripe.add(ticket, ceiling, ticket.order)

    def first(self, now: float) -> Ticket | None:
        self._ripen(now)
        found: Ticket | None = self._ripe.first() if self._ripe.count else self._unripe.first()
        return found

    def rank(self, now: float) -> tuple[float, ...]:
        self._ripen(now)
        row = self._ripe
        if row.count:
            return row.first_key(), float(row.first_order())
        row = self._unripe
        return row.first_key() - self._rate * now, float(row.first_order())

    def band(self, most: int, now: float) -> list[Ticket]:
        self._ripen(now)
        row = self._ripe if self._ripe.count else self._unripe
        return row.leading(most, row.first_key() + self._width) if row.count else []

    def within(self, ticket: Ticket, now: float) -> bool:
        self._ripen(now)
        row = self._ripe if self._ripe.count else self._unripe
        node: Ranked = ticket.node
        entry = ticket.entry
        return node is row and entry is not None and entry.key <= row.first_key() + self._width
