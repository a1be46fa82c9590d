"""A line by urgency and age: every second of waiting makes a ticket a little more urgent.

All age alike, so their order never changes as long as they age: `number + rate * arrival` is a key
they keep. What has reached the ceiling ages no more and goes by arrival; it moves to a second row
when its time has come, and the first key tells whose has.

Must never: look at more than whose time has come.
"""

from __future__ import annotations

from policies.queueing.base import BaseLine
from policies.queueing.ranked import Ranked
from policies.queueing.ticket import Ticket


class AgingLine(BaseLine):
    """The lowest of max(ceiling, number - rate * age) first, ties by arrival."""

    __slots__ = ("_ceiling", "_rate", "_ripe", "_unripe", "_width")

    def __init__(self, rate: float, ceiling: float, width: float) -> None:
        """`rate`: levels a second. `ceiling`: the level up to which age counts. `width`: levels
        that count as equal where the prefix decides."""
        self._rate = rate
        self._ceiling = ceiling
        self._width = width
        self._ripe = Ranked()  # by level: at the ceiling or, by nature, more urgent than that
        self._unripe = Ranked()  # by level + rate * arrival

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
