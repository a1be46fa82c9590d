"""A class queue that changes between deadline order and worth order: SlideBatching in a proxy.

Source: PROSERVE (arXiv 2512.12928); the rule is taken from xLLM's unified scheduling policy. The
sliding boundary is the time that all waiting work takes. A ticket whose deadline is nearer than the
boundary is urgent, any other is normal. Under light load nearly all tickets are normal, and the
earliest deadline goes first. Under overload nearly all tickets are urgent. Then not all deadlines
can be met, and the ticket with the most worth (the weight of its class times that of its key) per
second of prefill goes first. A ticket that is late by `lateness` times the usual TTFT SLO is called
lost. Little can be gained by sending it, so it goes last. (In xLLM such a request goes first, so
that it does not wait for ever. Under lasting overload all requests would then be served late. Here
the queue sends starved requests, within the `starvation` of their class if possible.)

The usual SLO is that of the API key or of the class, not the SLO that the client states. So of two
requests of a class, the one that is later by its own deadline is lost first, and a client gets the
same time after its deadline whichever SLO it states. If that time were a share of the stated SLO, a
client with a loose SLO would go before requests of its class that are less late.

In an engine, this rule is applied to every step, including decode steps. Here it is applied to
every dispatch. The service time is the predicted prefill time, and the waiting work is divided
among the replicas.

Must never: reorder requests that were dispatched.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Final

from policies.queueing.base import BaseLine
from policies.queueing.deadlines import due
from policies.queueing.ranked import Ranked
from policies.queueing.ticket import Ticket

URGENT: Final = 0
NORMAL: Final = 1
LOST: Final = 2
_LEAST_S: Final = 1e-3


class Slope:
    """The state that all lines of one policy share: its options, and their total waiting work."""

    __slots__ = (
        "base_s",
        "eagerness",
        "lateness",
        "prefill_rate",
        "replicas",
        "width",
        "work_s",
    )

    def __init__(
        self, prefill_rate: float, base_s: float, eagerness: float, lateness: float, width: float
    ) -> None:
        self.prefill_rate = prefill_rate  # prompt tokens that one replica prefills in a second
        # Part of a prefill's time, in seconds, that does not depend on the prompt's length.
        self.base_s = base_s
        self.eagerness = eagerness
        self.lateness = lateness
        # How far behind the first ticket another one may be to go instead of it, as a share of the
        # TTFT SLO or of the worth per second.
        self.width = width
        self.replicas = 1
        self.work_s = 0.0

    def prefill_s(self, ticket: Ticket) -> float:
        return _LEAST_S + ticket.view.prompt_tokens / self.prefill_rate

    def lost_at(self, ticket: Ticket) -> float:
        """Return when a ticket becomes lost if it is not sent before, in monotonic seconds."""
        return due(ticket) + self.lateness * ticket.view.ttft_slo_usual_s - self.prefill_s(ticket)

    def worth(self, ticket: Ticket) -> float:
        """Return the worth of a ticket per second of its prefill."""
        return ticket.view.worth * ticket.flow.weight / self.prefill_s(ticket)

    def boundary_s(self, earliest_s: float) -> float:
        """Return the seconds to a deadline below which a ticket is urgent. `earliest_s`: seconds to
        the first deadline."""
        budget_s = max(earliest_s, 2.0 * self.base_s)
        work_s = self.work_s / self.replicas
        return self.eagerness * work_s / (1.0 - self.base_s / budget_s)


class Timetable:
    """Tickets ordered by a time, the earliest first. The entries of a removed ticket stay until
    they are the first ones, or until such entries outnumber the waiting tickets.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[Any] = []  # heap of (time, order, id of the ticket, ticket)

    def add(self, when: float, ticket: Ticket, waiting: int) -> None:
        """`waiting`: the number of tickets in the line."""
        if len(self.entries) > 64 + 2 * waiting:
            # Removed tickets still have entries, and a ticket that was put back has several.
            entries = dict.fromkeys(self.entries)
            self.entries = [entry for entry in entries if entry[3].node is not None]
            heapify(self.entries)
        heappush(self.entries, (when, ticket.order, id(ticket), ticket))


class SlidingQueue(BaseLine):
    """Urgent tickets go first, by worth per second; then normal tickets, by deadline; then lost
    tickets, by deadline.
    """

    __slots__ = ("_due", "_losing", "_lost", "_normal", "_slope", "_urgent", "_waiting")

    def __init__(self, slope: Slope) -> None:
        self._slope = slope
        self._urgent = Ranked()
        self._normal = Ranked()
        self._lost = Ranked()
        # Urgent and normal tickets by deadline, and by the time at which they are lost. The two
        # orders differ, because requests of one class may have different SLOs.
        self._due = Timetable()
        self._losing = Timetable()
        self._waiting = 0

    def push(self, ticket: Ticket, now: float) -> None:
        slope = self._slope
        deadline = due(ticket)
        slope.work_s += slope.prefill_s(ticket)
        self._waiting += 1
        ticket.node = self._normal
        self._normal.add(ticket, deadline, ticket.order)
        self._due.add(deadline, ticket, self._waiting)
        self._losing.add(slope.lost_at(ticket), ticket, self._waiting)

    def drop(self, ticket: Ticket) -> None:
        slope = self._slope
        row: Ranked = ticket.node
        ticket.node = None
        row.remove(ticket)
        self._waiting -= 1
        if row is not self._lost:
            slope.work_s = max(0.0, slope.work_s - slope.prefill_s(ticket))

    def take(self, ticket: Ticket, now: float) -> None:
        self.drop(ticket)

    def _move(self, ticket: Ticket, row: Ranked, key: float) -> None:
        before: Ranked = ticket.node
        before.remove(ticket)
        ticket.node = row
        row.add(ticket, key, ticket.order)

    def _slide(self, now: float) -> None:
        slope = self._slope
        losing = self._losing.entries
        while losing and (losing[0][0] <= now or not self._has_hope(losing[0][3])):
            ticket: Ticket = heappop(losing)[3]
            if self._has_hope(ticket):
                self._move(ticket, self._lost, due(ticket))
                slope.work_s = max(0.0, slope.work_s - slope.prefill_s(ticket))
        by_deadline = self._due.entries
        while by_deadline and not self._has_hope(by_deadline[0][3]):
            heappop(by_deadline)
        normal, urgent = self._normal, self._urgent
        # The earliest deadline of urgent and normal tickets. If it came from the normal tickets
        # alone, the boundary would move when a ticket becomes urgent, and a second call would give
        # another order.
        earliest_s = by_deadline[0][0] - now if by_deadline else 0.0
        until = now + slope.boundary_s(earliest_s)
        while normal.count and normal.first_key() < until:
            ticket = normal.first()
            self._move(ticket, urgent, -slope.worth(ticket))
        # The waiting work has decreased, so the next urgent ticket may have enough time again.
        while urgent.count:
            ticket = urgent.first()
            deadline = due(ticket)
            if deadline < until:
                break
            self._move(ticket, normal, deadline)

    def _has_hope(self, ticket: Ticket) -> bool:
        """Whether the ticket waits here and is not lost."""
        node: Ranked | None = ticket.node
        return node is self._urgent or node is self._normal

    def is_lost(self, ticket: Ticket, now: float) -> bool:
        self._slide(now)
        return ticket.node is self._lost

    def _row(self, now: float) -> tuple[int, Ranked]:
        self._slide(now)
        if self._urgent.count:
            return URGENT, self._urgent
        if self._normal.count or not self._lost.count:
            return NORMAL, self._normal
        return LOST, self._lost

    def first(self, now: float) -> Ticket | None:
        found: Ticket | None = self._row(now)[1].first()
        return found

    def rank(self, now: float) -> tuple[float, ...]:
        group, row = self._row(now)
        return float(group), row.first_key(), float(row.first_order())

    def _last_key(self, row: Ranked) -> float:
        """Return the highest key with which a ticket may go instead of the first one. `row` must
        not be empty."""
        key = row.first_key()
        if row is self._urgent:
            return key + self._slope.width * abs(key)
        first: Ticket = row.first()
        return key + self._slope.width * first.view.ttft_slo_s

    def band(self, most: int, now: float) -> list[Ticket]:
        row = self._row(now)[1]
        return row.leading(most, self._last_key(row)) if row.count else []

    def within(self, ticket: Ticket, now: float) -> bool:
        row = self._row(now)[1]
        node: Ranked = ticket.node
        entry = ticket.entry
        return node is row and entry is not None and entry.key <= self._last_key(row)
