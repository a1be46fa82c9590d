"""Those of one class that may go to the same replicas: the order policy's line, and who is eldest.

The line says who goes next. Beside it the row knows who has waited longest, for time alone changes
what a class may do: its eldest decides how the class is treated (aging, starvation) and is the
first to expire. What has left is only skipped, and swept away once most of the row is gone.

Must never: decide an order.
"""

from __future__ import annotations

from collections import deque

from policies.queueing.contract import Line
from policies.queueing.ticket import WAITING, Ticket
from router.admission.affinity import Shortlist


class Row:
    """One class of one lane."""

    __slots__ = ("_starved", "_young", "count", "line", "looking", "short", "urgency")

    def __init__(self, urgency: int, line: Line) -> None:
        self.urgency = urgency
        self.line = line
        self.count = 0
        self.looking = 0  # those of whose prefix something is known
        self.short = Shortlist()  # the first few, where it matters which of them goes
        self._young: deque[Ticket] = deque()  # by arrival, the first to be promoted first
        self._starved: deque[Ticket] = deque()  # by arrival; they have been promoted

    def enter(self, ticket: Ticket, now: float) -> None:
        self.count += 1
        if ticket.look is not None:
            self.looking += 1
        if self.count <= self.short.size:
            self.short.join(ticket)
        ticket.starved = False  # one that was put back is promoted again
        young = self._young
        if young and ticket.order < young[-1].order:
            self._put_back(ticket)
        else:
            young.append(ticket)
        self.line.push(ticket, now)

    def _put_back(self, ticket: Ticket) -> None:
        """An old one comes again, before all that came later. Rare, so it may look through them."""
        place = 0
        for other in self._young:
            if other.order >= ticket.order:
                break
            place += 1
        self._young.insert(place, ticket)

    def left(self, ticket: Ticket) -> None:
        """It waits no longer, and the line knows it."""
        self.count -= 1
        if ticket.look is not None:
            self.looking -= 1
        if self.short.size:
            if self.count:
                self.short.left(ticket)
            else:
                self.short.clear()
        if len(self._young) + len(self._starved) > 64 + 2 * self.count:
            self._young = deque([t for t in self._young if t.state == WAITING and not t.starved])
            self._starved = deque([t for t in self._starved if t.state == WAITING])

    def eldest(self) -> Ticket | None:
        starving = self.eldest_starved()
        return self.eldest_young() if starving is None else starving

    def eldest_starved(self) -> Ticket | None:
        starved = self._starved
        while starved:
            ticket = starved[0]
            if ticket.state == WAITING and ticket.starved:
                return ticket
            starved.popleft()
        return None

    def eldest_young(self) -> Ticket | None:
        young = self._young
        while young:
            ticket = young[0]
            if ticket.state == WAITING and not ticket.starved:
                return ticket
            young.popleft()
        return None

    def promote(self, now: float, after_s: float, most: int) -> int:
        """Those that have waited so long are starved; how many have become so now."""
        count = 0
        while count < most:
            ticket = self.eldest_young()
            if ticket is None or ticket.arrival + after_s > now:
                break
            self._young.popleft()
            ticket.starved = True
            self._starved.append(ticket)
            count += 1
        return count

    def starved_for(self, place: object, most: int) -> Ticket | None:
        """The eldest starved one that may go there, of the first `most`."""
        if self.eldest_starved() is None:
            return None
        for ticket in self._starved:
            if ticket.state == WAITING and ticket.starved and place not in ticket.excluded:
                return ticket
            most -= 1
            if most <= 0:
                break
        return None

    def tickets(self) -> list[Ticket]:
        """All that wait, the eldest first."""
        # One that was put back may stand here twice.
        found = dict.fromkeys([t for t in (*self._starved, *self._young) if t.state == WAITING])
        return list(found)

    def held(self) -> int:
        """Entries in memory: for tests of what stays bounded."""
        return len(self._young) + len(self._starved)


class Lane:
    """The rows of tickets that may go to the same replicas."""

    __slots__ = ("count", "name", "rows")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.rows: list[Row | None] = [None, None, None, None, None]
