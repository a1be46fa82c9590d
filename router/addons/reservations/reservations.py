"""Reserves shares of the token capacity of a model pool for classes.

This module counts the tokens (prompt and predicted output) of the requests that were sent and have
not ended, by class.

Rules:
1. The reservation of a class is limited to its highest demand in the last minute: the tokens of its
   running and waiting requests. Tokens of its running requests count as used, not as reserved.
2. A class may always send a request while it uses less than its share. The request may exceed the
   share, so even a request that is larger than the share can be sent.
3. Beyond its share a class may use free capacity, less what is reserved for the other classes. So
   any class can use idle capacity, and freed capacity goes to the class that reserves it.
4. With `strict`, no class may exceed its share.
5. If the capacity is unknown, nothing is limited. The capacity is the sum of the KV caches. If an
   engine does not report the size of its KV cache, the most tokens that ran there while its slots
   or its KV cache were used up are used.

Must never: depend on which replica has free capacity.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES, ENDED, INFINITY, Ticket
from router.admission.due import Ticked
from router.admission.extra import Extra
from router.admission.gates.gate_cache import CachedGate
from router.admission.queue_state import QueueState
from router.core.replica_load import ReplicaLoad
from router.core.urgency import NORMAL

WINDOW_S: Final = 60.0
LOOK_S: Final = 1.0  # Seconds between two updates of the token capacity.
_PARTS: Final = 6
PART_S: Final = WINDOW_S / _PARTS
_ANY: Final = ""  # The lane of requests that name no model, which may go to all fit replicas.


class Demands:
    """The tokens that each class uses and wants, and its highest demand in the last minute."""

    __slots__ = ("_parts", "most", "used", "waiting")

    def __init__(self) -> None:
        self.used = [0] * CLASSES  # Tokens of sent requests that have not ended.
        self.waiting = [0] * CLASSES  # Tokens of waiting requests.
        self.most = [0] * CLASSES  # The highest sum of both in the window.
        # By class: one entry for each part of the window, with the number of the part and the
        # highest sum of running and waiting tokens in this part.
        self._parts: list[list[tuple[int, int]]] = [[] for _ in range(CLASSES)]

    def waits(self, urgency: int, tokens: int, now: float) -> None:
        self.waiting[urgency] += tokens
        self._wanted(urgency, now)

    def sent(self, urgency: int, tokens: int, now: float) -> None:
        self.used[urgency] += tokens
        self._wanted(urgency, now)

    def recount(self, used: list[int], waiting: list[int]) -> None:
        """Replace the counts of running and waiting tokens of each class. A call of `tick` must
        follow."""
        self.used = used
        self.waiting = waiting
        self._parts = [[] for _ in range(CLASSES)]
        self.most = [used[urgency] + waiting[urgency] for urgency in range(CLASSES)]

    def _wanted(self, urgency: int, now: float) -> None:
        demand = self.used[urgency] + self.waiting[urgency]
        number = int(now / PART_S)
        parts = self._parts[urgency]
        if parts and parts[-1][0] == number:
            if demand > parts[-1][1]:
                parts[-1] = (number, demand)
        else:
            parts.append((number, demand))
        self.most[urgency] = max(self.most[urgency], demand)

    def tick(self, now: float) -> None:
        """Drop demand that is older than the one-minute window, and record the present demand."""
        oldest = int(now / PART_S) - _PARTS
        for urgency in range(CLASSES):
            parts = [part for part in self._parts[urgency] if part[0] >= oldest]
            self._parts[urgency] = parts
            self.most[urgency] = max((part[1] for part in parts), default=0)
            if self.used[urgency] or self.waiting[urgency]:
                self._wanted(urgency, now)


class Reservations(Extra):
    """The reservations of one queue."""

    def __init__(self, queue: QueueState) -> None:
        """Count the tokens of all requests of the queue."""
        self._queue = queue
        self.demands = Demands()
        self.capacity = 0.0  # Token capacity of the pool; 0: unknown.
        self._counted: dict[Ticket, None] = {}  # The tickets whose tokens count as used.
        # By replica: the most tokens that ran there while the slots or the KV cache were used up.
        self._peaks: dict[ReplicaLoad, int] = {}
        self._weighed_at = -INFINITY  # When the capacity was last updated.
        # Tokens or replicas have changed, so any replica may accept one more request.
        self._is_dirty = True
        used, waiting = [0] * CLASSES, [0] * CLASSES
        for ticket in queue.runs.tickets:
            queue.runs.predict(ticket)
            used[ticket.urgency] += ticket.reserved
            self._counted[ticket] = None
        for ticket in queue.wait_lists.tickets():
            if ticket.blocked_in is None:
                waiting[ticket.urgency] += ticket.reserved
        self.demands.recount(used, waiting)
        self.capacity = self._measured()

    # -- events of tickets --------------------------------------------------------------------

    def waits(self, ticket: Ticket, now: float) -> None:
        self.demands.waits(ticket.urgency, ticket.reserved, now)

    def left(self, ticket: Ticket) -> None:
        self.demands.waiting[ticket.urgency] -= ticket.reserved
        if ticket.state == ENDED:
            self._is_dirty = True

    def sent(self, ticket: Ticket, gate: CachedGate, now: float) -> None:
        self.moved(ticket, now)

    def moved(self, ticket: Ticket, now: float) -> None:
        if ticket not in self._counted:
            self._queue.runs.predict(ticket)
            self._counted[ticket] = None
            self.demands.sent(ticket.urgency, ticket.reserved, now)

    def ended(self, ticket: Ticket) -> None:
        del self._counted[ticket]
        self.demands.used[ticket.urgency] -= ticket.reserved
        self._is_dirty = True

    # -- time and replicas --------------------------------------------------------------------

    def opens(self, now: float) -> bool:
        if now >= self._weighed_at + LOOK_S:
            self.ticks(now)
        was_dirty, self._is_dirty = self._is_dirty, False
        return was_dirty

    def ticks(self, now: float) -> None:
        """Update the pool's token capacity, and drop token demand older than `WINDOW_S`."""
        self._weighed_at = now
        self.demands.tick(now)
        self.capacity = self._measured()

    def urges(self, ticked: Ticked, now: float) -> None:
        self._is_dirty = False
        ticked.next_at = min(ticked.next_at, now + LOOK_S)

    def gone(self, place: ReplicaLoad, to: Extra | None) -> None:
        self._is_dirty = True
        peak = self._peaks.pop(place, 0)
        if peak and isinstance(to, Reservations):
            to._peaks[place] = peak

    def _measured(self) -> float:
        """Return the token capacity of all fit replicas; 0: no capacity is known.

        The capacity of a replica is the size of its KV cache. If that is unknown, it is the most
        tokens that ran there while the replica was full. If that is unknown, too, the mean of the
        other replicas is used.
        """
        queue = self._queue
        by_place = queue.gates.by_place
        gates = [by_place[p] for p in queue.pool.eligible(_ANY) if p in by_place]
        known = 0.0
        count = 0
        for gate in gates:
            tokens = gate.place.kv_tokens
            if tokens is None or tokens <= 0:
                tokens = self._peak(gate)
            if tokens > 0:
                known += tokens
                count += 1
        return known / count * len(gates) if count else 0.0

    def _peak(self, gate: CachedGate) -> int:
        place = gate.place
        if self._is_full(gate):
            running = 0
            for ticket in self._counted:
                if ticket.place is place:
                    running += ticket.reserved
            self._peaks[place] = max(self._peaks.get(place, 0), running)
        return self._peaks.get(place, 0)

    def _is_full(self, gate: CachedGate) -> bool:
        """Whether the gate is closed to class normal because the slots or the KV cache of the
        replica are used up.

        For another reason, such as a burst of prefills, the gate may be closed with few tokens
        running. The reservations would then limit the classes to these few tokens for ever.
        """
        if gate.is_shut or gate.starved_mask & (1 << NORMAL):
            return False
        facts = gate.facts
        return facts.is_full() or facts.kv_usage >= self._queue.rules.classes[NORMAL].kv_usage

    # -- queries ------------------------------------------------------------------------------

    def _share(self, urgency: int) -> float:
        return self._queue.rules.classes[urgency].share * self.capacity

    def held(self, urgency: int) -> float:
        """Return the tokens that are reserved for the class in addition to those it uses."""
        demands = self.demands
        most = min(self._share(urgency), float(demands.most[urgency]))
        return max(0.0, most - demands.used[urgency])

    def allows(self, ticket: Ticket) -> bool:
        """Whether the class of a ticket may send the ticket's tokens."""
        self._queue.runs.predict(ticket)  # A new request has no prediction yet.
        capacity, urgency, used = self.capacity, ticket.urgency, self.demands.used
        if capacity <= 0.0 or used[urgency] < self._share(urgency):
            return True
        if self._queue.rules.config.queue.reservations.strict:
            return False
        free = capacity - ticket.reserved
        for other in range(CLASSES):
            free -= used[other]
            if other != urgency:
                free -= self.held(other)
        return free >= 0.0
