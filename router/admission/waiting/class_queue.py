"""Keeps the waiting tickets of one class and lane, in the order policy's order and by arrival.

The line, an ordered list that the order policy creates, determines which ticket is next. The class
queue also finds its oldest ticket, because that ticket determines aging and starvation of the class
and expires first. When a ticket leaves, its entry stays in the lists by arrival and is skipped. The
lists are cleaned when most of their entries are outdated.

Must never: determine the order of tickets itself.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Final

from policies.queueing.base import BaseLine
from policies.queueing.ticket import INFINITY, Ticket
from router.admission.concurrency import Concurrency
from router.admission.waiting.affinity import PASSES, Shortlist
from router.core.urgency import BATCH

# If the list `_young` begins with more outdated entries than this number, they are removed.
_GONE: Final = 64


class ClassQueue:
    """The queue of one priority class in one lane."""

    __slots__ = (
        "_back",
        "_first",
        "_starved",
        "_young",
        "count",
        "is_blocked",
        "keys",
        "lane",
        "line",
        "looking",
        "lost_at",
        "served_at",
        "short",
        "urgency",
    )

    def __init__(self, lane: Lane, urgency: int, line: BaseLine) -> None:
        self.lane = lane
        self.urgency = urgency
        self.line = line
        self.is_blocked = (
            False  # The tickets of this queue may not be sent; see `wait_lists.KeyQueue`.
        )
        self.served_at = -INFINITY  # When a ticket of this queue was last sent.
        # When a ticket was last sent that the line calls lost (`BaseLine.is_lost`).
        self.lost_at = -INFINITY
        self.count = 0
        self.looking = 0  # The number of tickets whose prompt prefix can be looked up.
        # The first few tickets of the line, for prefix affinity.
        self.short = Shortlist(0.0 if urgency == BATCH else PASSES)
        # One `KeyQueue` for each API key that has a limit and has tickets here.
        self.keys: dict[Concurrency, ClassQueue] = {}
        # Tickets that are not starved, by arrival. Entries before the index `_first` are outdated.
        self._young: list[Ticket] = []
        self._first = 0
        # Heap of (order, id of the ticket, ticket): tickets that were put back and are older than
        # some in `_young`.
        self._back: list[tuple[int, int, Ticket]] = []
        self._starved: deque[Ticket] = deque()  # Starved tickets, by arrival.

    def has(self, ticket: Ticket) -> bool:
        """Whether a ticket waits here now."""
        return ticket.class_queue is self

    def _is_young(self, ticket: Ticket) -> bool:
        return ticket.class_queue is self and not ticket.starved

    def _is_starved(self, ticket: Ticket) -> bool:
        return ticket.class_queue is self and ticket.starved

    def enter(self, ticket: Ticket, now: float) -> None:
        ticket.class_queue = self
        self.count += 1
        if ticket.view.blocks:
            self.looking += 1
        if self.count <= self.short.size:
            self.short.join(ticket)
        ticket.starved = False  # If the ticket was put back, `promote` must mark it again.
        young = self._young
        if self._first < len(young) and ticket.order < young[-1].order:
            heappush(self._back, (ticket.order, id(ticket), ticket))
        else:
            young.append(ticket)
        self.line.push(ticket, now)

    def left(self, ticket: Ticket) -> None:
        """Stop counting a ticket that was removed from `line`."""
        self.count -= 1
        if ticket.view.blocks:
            self.looking -= 1
        if self.short.size:
            if self.count:
                self.short.left(ticket)
            else:
                self.short.clear()
        if self.held() > 64 + 2 * self.count:
            # A ticket that was put back may be in two of the three lists, and twice in each list.
            young = [t for t in self._young[self._first :] if self._is_young(t)]
            back = [t for _, _, t in self._back if self._is_young(t)]
            self._young = list(dict.fromkeys(young))
            self._first = 0
            self._back = [(t.order, id(t), t) for t in dict.fromkeys(back)]
            heapify(self._back)
            starved = [t for t in self._starved if self._is_starved(t)]
            self._starved = deque(dict.fromkeys(starved))

    def eldest(self) -> Ticket | None:
        starving = self.eldest_starved()
        return self.eldest_young() if starving is None else starving

    def eldest_starved(self) -> Ticket | None:
        starved = self._starved
        while starved:
            ticket = starved[0]
            if self._is_starved(ticket):
                return ticket
            starved.popleft()
        return None

    def eldest_young(self) -> Ticket | None:
        young = self._young
        first = self._first
        found: Ticket | None = None
        while first < len(young):
            ticket = young[first]
            if self._is_young(ticket):
                found = ticket
                break
            first += 1
        if first > _GONE and 2 * first > len(young):
            del young[:first]
            first = 0
        self._first = first
        back = self._back
        while back and not self._is_young(back[0][2]):
            heappop(back)
        if back and (found is None or back[0][0] < found.order):
            return back[0][2]
        return found

    def promote(self, now: float, after_s: float, most: int) -> int:
        """Mark at most `most` tickets that have waited for `after_s` as starved.

        Returns how many were marked.
        """
        count = 0
        while count < most:
            ticket = self.eldest_young()
            if ticket is None or ticket.arrival + after_s > now:
                break
            ticket.starved = True
            starved = self._starved
            at = len(starved)
            # A ticket that was put back may be older than tickets that became starved since.
            while at and starved[at - 1].order > ticket.order:
                at -= 1
            starved.insert(at, ticket)
            count += 1
        return count

    def starved_for(self, place: object, most: int) -> Ticket | None:
        """Return the oldest starved ticket that may go to a replica, among the `most` oldest
        ones."""
        if self.eldest_starved() is None:
            return None
        for ticket in self._starved:
            if self._is_starved(ticket) and place not in ticket.excluded:
                return ticket
            most -= 1
            if most <= 0:
                break
        return None

    def oldest(self, most: int) -> list[Ticket]:
        """Return the `most` oldest tickets, by arrival."""
        found: list[Ticket] = []
        for ticket in self._starved:
            if len(found) >= most:
                return found
            if self._is_starved(ticket):
                found.append(ticket)
        enough = len(found) + most
        young, at = self._young, self._first
        while at < len(young) and len(found) < enough:
            ticket = young[at]
            at += 1
            if self._is_young(ticket):
                found.append(ticket)
        found += [t for _, _, t in self._back if self._is_young(t)]
        found.sort(key=_order)
        return found[:most]

    def tickets(self) -> list[Ticket]:
        """Return all waiting tickets, in no particular order."""
        back = [ticket for _, _, ticket in self._back]
        # A ticket that was put back may have two entries.
        young = self._young[self._first :]
        found = [t for t in (*self._starved, *young, *back) if self.has(t)]
        return list(dict.fromkeys(found))

    def held(self) -> int:
        """The number of entries in memory, for tests of bounded memory."""
        return len(self._young) + len(self._back) + len(self._starved)


class Lane:
    """The class queues of tickets that may go to the same replicas."""

    __slots__ = ("class_queues", "count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.class_queues: list[ClassQueue | None] = [None, None, None, None, None]

    def all_queues(self) -> list[ClassQueue]:
        """The class queues and their `KeyQueue`s."""
        found: list[ClassQueue] = []
        for class_queue in self.class_queues:
            if class_queue is not None:
                found.append(class_queue)
                found.extend(class_queue.keys.values())
        return found


def _order(ticket: Ticket) -> int:
    return ticket.order
