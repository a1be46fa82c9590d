"""What waits at the other routers of the fleet, and whether it goes before a ticket of this router.

All routers together have one order, as far as they have told each other what waits
(`router/share`). A slot that becomes free is seen first by the router whose request has ended. So
if a request of another router goes first, this router leaves the slot free for `patience_s`: by
then the other router has heard of it and has sent its request. If it has not, it cannot, and this
router does not wait for it at this replica for `_PAUSE_S` seconds. The time begins when a request
of the other one's class may be sent to the replica.

A request goes before a ticket of this router
- if its class is critical, or has its turn by weight (`stride.py`); with `queue.order` "strict", if
  its class, raised by its age, is more urgent;
- or within one class, if the order policy says so (`OrderPolicy.yields`);
- or if it has waited for `_OLDER_S` longer, with a policy that orders by arrival.

A class whose oldest request is starved goes before the other classes, but gets at most every other
slot of a replica. So a starved class of this router waits for requests of other routers at every
other slot only, and this router leaves every other slot free for a starved class of another router.

A critical ticket waits for no other request.

Must never: keep a replica free for longer than `patience_s` if no other router takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from policies.queueing.foreign import Failures
from policies.queueing.ticket import CLASSES, INFINITY, Ticket
from router.admission.gates.gate_cache import CachedGate
from router.admission.pool import Pool
from router.admission.rules import STRICT, TOGETHER, Rules
from router.admission.waiting.stride import Stride
from router.core.replica_load import ReplicaLoad
from router.core.urgency import BATCH, CRITICAL, HIGH

_PAUSE_S: Final = 1.0
_OLDER_S: Final = 0.25


class Elsewhere:
    """What waits at the other routers, by model and class; all queues of a router have one."""

    __slots__ = ("failures", "patience_s", "since", "waits", "was_taken")

    def __init__(self, failures: Failures) -> None:
        """`failures`: those of the order policies."""
        self.failures = failures
        self.patience_s = 0.0
        # Another router has taken a slot that was left free, since a starved ticket was sent.
        self.was_taken = False
        self.waits = False  # Whether any request waits at another router.
        # By model: by class, the arrival of the oldest request; infinity: none waits.
        self.since: dict[str, list[float]] = {}

    def adopt(self, waiting: Iterable[tuple[str, int, float]]) -> None:
        """Replace everything. `waiting`: model, class, and arrival in monotonic seconds."""
        since: dict[str, list[float]] = {}
        for model, urgency, arrival in waiting:
            by_class = since.setdefault(model, [INFINITY] * CLASSES)
            by_class[urgency] = min(by_class[urgency], arrival)
        self.since = since
        self.waits = bool(since)


class Yielding:
    """Compares the tickets of one queue with what waits at the other routers.

    `level` is the aged level of a ticket's class queue.
    """

    __slots__ = ("_elsewhere", "_pool", "_rules", "_stride")

    def __init__(self, elsewhere: Elsewhere, rules: Rules, stride: Stride, pool: Pool) -> None:
        self._elsewhere = elsewhere
        self._rules = rules
        self._stride = stride
        self._pool = pool

    def holds(
        self,
        gate: CachedGate,
        ticket: Ticket,
        level: float,
        now: float,
        *,
        is_starved: bool = False,
    ) -> bool:
        """Whether a replica is left free for a request of another router, and not for a ticket.

        `is_starved`: whether the oldest ticket of the class queue is starved.
        """
        elsewhere = self._elsewhere
        # Only the load of other routers: this router may send other requests to the replica.
        load = gate.facts.foreign_load - gate.facts.untold_load
        if is_starved and (elsewhere.was_taken or load < gate.kept_load):
            elsewhere.was_taken = False
            gate.kept_load = load
            return False
        if now < gate.waits_again_at:
            return False
        first = self._first(ticket, level, gate.place, now)
        alternates = is_starved
        # With turns by weight, two starved classes need no other turns.
        if first == CLASSES and (self._rules.mode == STRICT or not is_starved):
            first = self._starved(ticket, gate.place, now)
            alternates = True
        if first == CLASSES:
            return False
        if alternates and gate.has_left and now >= gate.kept_until:
            gate.has_left = False
            return False
        # Class batch is asked before a slot is free, because it has turns. The time begins later.
        if ticket.urgency == BATCH and not is_starved and not gate.mask & (1 << first | 1 << BATCH):
            return True
        until = gate.kept_until
        latest = until + elsewhere.patience_s
        is_taken = load > gate.kept_load and now <= latest
        if is_taken:
            elsewhere.was_taken = True
        gate.kept_load = load
        if is_taken and alternates and not is_starved:
            gate.has_left = False
            gate.kept_until = -INFINITY
            return False
        # An urgent request waits for a free slot, so it cannot come before there is one.
        if first <= HIGH and gate.facts.needs_slot():
            gate.kept_until = -INFINITY
            return True
        if is_taken or now > latest:
            until = gate.kept_until = now + elsewhere.patience_s
        if now >= until:
            gate.waits_again_at = now + _PAUSE_S
        gate.has_left = alternates and now < until
        return now < until

    def is_behind(self, ticket: Ticket, level: float, now: float) -> bool:
        """Whether a request of another router goes before a ticket at any replica."""
        if self._first(ticket, level, None, now) < CLASSES:
            return True
        return self._starved(ticket, None, now) < CLASSES

    def _first(self, ticket: Ticket, level: float, place: ReplicaLoad | None, now: float) -> int:
        """Return the class of a request of another router that goes before a ticket; `CLASSES`:
        there is none. `place`: a replica to which the request may be sent; `None`: any replica."""
        if ticket.urgency == CRITICAL:
            return CLASSES
        for model, by_class in self._elsewhere.since.items():
            urgency = self._first_of(by_class, ticket, level, now)
            if urgency < CLASSES and (place is None or self._pool.serves(place, model)):
                return urgency
        return CLASSES

    def _starved(self, ticket: Ticket, place: ReplicaLoad | None, now: float) -> int:
        """Return a class that is starved at another router, apart from critical and the class of a
        ticket; `CLASSES`: there is none. `place`: as in `_first`."""
        if ticket.urgency == CRITICAL:
            return CLASSES
        classes = self._rules.classes
        for model, by_class in self._elsewhere.since.items():
            for urgency in range(HIGH, CLASSES):
                is_starved = now >= by_class[urgency] + classes[urgency].promote_s
                if is_starved and urgency != ticket.urgency:
                    if place is None or self._pool.serves(place, model):
                        return urgency
                    break
        return CLASSES

    def may_use(self, gate: CachedGate, most: int) -> bool:
        """Whether a request of one of the classes 0 to `most` waits at another router and may be
        sent to a replica now."""
        for model, by_class in self._elsewhere.since.items():
            for urgency in range(most + 1):
                if by_class[urgency] < INFINITY and gate.mask & (1 << urgency):
                    return self._pool.serves(gate.place, model)
        return False

    def _first_of(self, by_class: list[float], ticket: Ticket, level: float, now: float) -> int:
        """Return the class of a request of one model that goes before a ticket; `CLASSES`: there is
        none."""
        rules, passes = self._rules, self._stride.passes
        own, rounded = ticket.urgency, int(level + 0.5)
        for urgency in range(CLASSES):
            since = by_class[urgency]
            if since == INFINITY:
                continue
            if urgency == own or rules.mode == TOGETHER:
                is_first = self._is_before(urgency, since, ticket)
            elif rules.mode == STRICT or urgency == CRITICAL:
                is_first = int(rules.aged(float(urgency), now - since) + 0.5) < rounded
            elif urgency < own:
                is_first = passes[urgency] <= passes[own]
            else:
                is_first = passes[urgency] < passes[own]
            if is_first:
                return urgency
        return CLASSES

    def _is_before(self, urgency: int, since: float, ticket: Ticket) -> bool:
        """Whether a request of a class goes before a ticket by the order policy. It waits since a
        time."""
        order = self._rules.order
        if order.by_arrival:
            return since + _OLDER_S < ticket.arrival
        if urgency != ticket.urgency:
            return False
        try:
            return bool(order.yields(ticket))
        except Exception as err:
            self._elsewhere.failures.add("yields", err)
            return False
