"""Where tickets wait: lanes and rows, flows, deadlines, and how many may wait at all.

Must never: decide who goes next, or tell anybody.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Final

from policies.queueing.contract import OrderPolicy
from policies.queueing.ticket import CLASSES, WAITING, Ticket
from router.admission.holders import Holders
from router.admission.reservations import Reservations
from router.admission.row import Lane, Row
from router.admission.rules import Rules
from router.admission.turns import Turns
from router.core.errors import Reason

_LANES: Final = 64  # kept though nobody waits in them; models and pins come and go


class Orders:
    """The order of arrival, shared by queues between which tickets may move."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0


class Room:
    """Of one queue."""

    __slots__ = (
        "_deadlines",
        "_lanes",
        "_order",
        "_reservations",
        "_rules",
        "_turns",
        "active",
        "body_bytes",
        "count",
        "depth",
        "holders",
    )

    def __init__(
        self, rules: Rules, order: OrderPolicy, turns: Turns, reservations: Reservations
    ) -> None:
        self.count = 0  # that wait ...
        self.depth = [0] * CLASSES  # ... by class
        self.body_bytes = 0  # held by them
        self.active: dict[str, Lane] = {}  # with somebody that waits
        self._lanes: dict[str, Lane] = {}  # ... or that did a moment ago
        self.holders = Holders(rules.bytes)  # who holds how much of it
        self._deadlines: list[Any] = []  # heap of (deadline, order, ticket), dead ones too
        self._turns = turns
        self._reservations = reservations
        self.adopt(rules, order)

    def adopt(self, rules: Rules, order: OrderPolicy) -> None:
        self._rules = rules
        self._order = order
        self.holders.adopt(rules.bytes)

    def reline(self) -> None:
        """All that wait stand in lines of another policy from now on, in the order they came."""
        self._lanes = dict(self.active)
        for lane in self.active.values():
            for urgency, row in enumerate(lane.rows):
                if row is None or not row.count:
                    lane.rows[urgency] = None
                    continue
                tickets = sorted(row.tickets(), key=_order)
                for ticket in tickets:
                    row.line.drop(ticket)
                row.line = self._order.line(urgency)
                row.short.clear()
                for ticket in tickets:
                    row.line.push(ticket, ticket.arrival)

    # -- coming and going ---------------------------------------------------------------------

    def has(self, lane: str, urgency: int) -> bool:
        """Whether somebody of the class waits there."""
        found = self.active.get(lane)
        if found is None:
            return False
        row = found.rows[urgency]
        return row is not None and row.count > 0

    def refuses(self, ticket: Ticket) -> Reason | None:
        """Why it may not wait; None: it may."""
        rules = self._rules
        if self.holders.waiting_of(ticket) >= rules.flow_depth:
            return Reason.QUEUE_FLOW_FULL
        if self.depth[ticket.urgency] >= rules.classes[ticket.urgency].depth:
            return Reason.QUEUE_FULL
        if self.body_bytes + ticket.body_bytes > rules.bytes:
            return Reason.QUEUE_BYTES_FULL
        return None

    def victim(self, ticket: Ticket, reason: Reason, most: int) -> Ticket | None:
        """The ticket that gives way to one that was refused for this reason; None: none does.
        `most`: so many may give way to it."""
        rules = self._rules
        depth = rules.classes[ticket.urgency].depth
        victim = self.holders.victim(ticket, reason, depth)
        if victim is not None and reason is Reason.QUEUE_BYTES_FULL:
            missing = self.body_bytes + ticket.body_bytes - rules.bytes
            if not self.holders.frees_enough(victim, missing, most):
                return None
        return victim

    def commits(self, ticket: Ticket) -> bool:
        """Whether the client of one that waits may be sent an early 200."""
        return self.holders.commits(ticket, self._rules.classes[ticket.urgency].depth)

    def enter(self, ticket: Ticket, now: float) -> None:
        """It waits, or waits again, however many do."""
        urgency = ticket.urgency
        ticket.state = WAITING
        ticket.skips = 0
        lane = self._lanes.get(ticket.lane)
        if lane is None:
            lane = self._lanes[ticket.lane] = Lane(ticket.lane)
        row = lane.rows[urgency]
        if row is None:
            row = lane.rows[urgency] = Row(urgency, self._order.line(urgency))
        if not lane.count:
            self.active[ticket.lane] = lane
        lane.count += 1
        self.count += 1
        self.depth[urgency] += 1
        self.body_bytes += ticket.body_bytes
        self.holders.enter(ticket)
        self._turns.begins(urgency)
        ticket.reserved = ticket.prompt + ticket.output
        if self._rules.reservations:
            self._reservations.waits(urgency, ticket.reserved, now)
        if ticket.deadline < inf:  # whatever its class allows, a reload may change that
            heappush(self._deadlines, (ticket.deadline, ticket.order, ticket))
        row.enter(ticket, now)

    def row(self, ticket: Ticket) -> Row:
        """Where it waits."""
        row = self._lanes[ticket.lane].rows[ticket.urgency]
        assert row is not None
        return row

    def left(self, ticket: Ticket, state: int) -> None:
        """It waits no longer, and its line knows it. It becomes `state`."""
        urgency = ticket.urgency
        ticket.state = state
        lane = self._lanes[ticket.lane]
        self.row(ticket).left(ticket)
        lane.count -= 1
        if not lane.count:
            del self.active[ticket.lane]
            if len(self._lanes) > _LANES:
                del self._lanes[ticket.lane]
        self.count -= 1
        self.depth[urgency] -= 1
        self.body_bytes -= ticket.body_bytes
        self._turns.ends(urgency)
        if self._rules.reservations:
            self._reservations.left(urgency, ticket.reserved)
        if len(self._deadlines) > 64 + 2 * self.count:
            self._deadlines = [e for e in self._deadlines if e[2].state == WAITING]
            heapify(self._deadlines)
        self.holders.left(ticket)

    def drop(self, ticket: Ticket, state: int) -> None:
        """It waits no longer, and was not served. It becomes `state`."""
        self.row(ticket).line.drop(ticket)
        self.left(ticket, state)

    # -- who is there -------------------------------------------------------------------------

    def next_deadline(self) -> Ticket | None:
        """Of those that have one of their own, whose comes first."""
        deadlines = self._deadlines
        while deadlines:
            ticket: Ticket = deadlines[0][2]
            if ticket.state == WAITING:
                return ticket
            heappop(deadlines)
        return None

    def ahead(self, ticket: Ticket, reason: Reason) -> int:
        """How many have to go before there is room for one that was refused for this reason."""
        if reason is Reason.QUEUE_FLOW_FULL:
            return self.holders.waiting_of(ticket)
        return self.depth[ticket.urgency]

    def ahead_at_least(self, ticket: Ticket) -> int:
        """How many will be sent before one that comes now, as far as the order policy is known to
        keep to that; 0: nothing is known."""
        order = self._order
        if order.by_arrival:
            lane = self.active.get(ticket.lane)
            row = None if lane is None else lane.rows[ticket.urgency]
            return 0 if row is None else row.count
        if order.is_fair:
            return self.holders.waiting_in(ticket)
        return 0

    def waiting_by_flow(self) -> dict[tuple[str, str], int]:
        return self.holders.by_flow()

    def ages_s(self, now: float) -> list[float]:
        """How long the eldest of each class has waited; 0: nobody waits."""
        ages = [0.0] * CLASSES
        for lane in self.active.values():
            for row in lane.rows:
                eldest = row.eldest() if row is not None else None
                if eldest is not None:
                    age_s = now - eldest.arrival
                    ages[eldest.urgency] = max(ages[eldest.urgency], age_s)
        return ages

    def tickets(self) -> list[Ticket]:
        """All that wait, in no order that means anything."""
        found: list[Ticket] = []
        for lane in self.active.values():
            for row in lane.rows:
                if row is not None:
                    found.extend(row.tickets())
        return found


def _order(ticket: Ticket) -> int:
    return ticket.order
