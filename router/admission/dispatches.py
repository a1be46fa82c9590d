"""Dispatches waiting tickets when a replica or an API key has capacity for one more request.

Must never: end a ticket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from policies.queueing.run import Run
from policies.queueing.ticket import NEW, SENT, Ticket
from router.admission.arrivals import Arrivals
from router.admission.gates.gate_cache import CachedGate
from router.admission.timers import EARLY_S, SOON_S
from router.admission.waiting.choice import cost
from router.admission.waiting.class_queue import ClassQueue
from router.core.replica_load import ReplicaLoad
from router.core.urgency import BATCH, HIGH

_NONE: Final[list[Ticket]] = []
LOOK_S: Final = 1.0  # Seconds between two updates of the token reservations of classes.


class Dispatches(Arrivals):
    """Sends tickets to replicas."""

    __slots__ = ()

    def sent(self, ticket: Ticket, place: ReplicaLoad, now: float) -> None:
        """Note that the driver has sent a new request to `place`, one of the replicas that `offer`
        returned, and has taken the lease."""
        if ticket.state != NEW:
            return
        self.counts.passed[ticket.urgency] += 1
        is_charged = self._wait_lists.eligible > 0
        if is_charged:
            self._predict(ticket)
            try:
                self._rules.order.passed(ticket, now)
            except Exception as err:
                self._orders.failures.add("passed", err)
            tokens = cost(ticket)
            self._choice.stride.serves(ticket.urgency, tokens, float(ticket.urgency))
            waits = self._wait_lists.eligible_of[ticket.urgency] > 0
            self._service_rate.served(ticket.urgency, now, tokens, waited=waits)
        gate = self._gates.of(place)
        self._begin(ticket, gate, now, is_charged, now)
        self._gates.look(gate)

    def freed(self, place: ReplicaLoad, now: float) -> list[Ticket]:
        """Return the tickets to send now, each to its `place`, after the facts of `place` changed.

        Facts change when a lease is released or taken outside of `sent`, first content arrives, a
        poll returns or fails, or the replica becomes fit. The driver takes the leases of all
        returned tickets before any other call.
        """
        gates = self._gates
        gate = gates.of(place)
        gates.look(gate)
        is_replanned = gates.look_if_replanned()
        if self._rules.reservations and now >= self._weighed_at + LOOK_S:
            self._weigh(now)
        if self._wait_lists.short:
            self._wait_lists.refill(now)
        if not self._wait_lists.eligible:
            return _NONE
        if is_replanned or (self._dirty and self._rules.reservations):
            self._dirty = False
            filled: list[Ticket] = []
            self._fill_all(filled, now)
            return filled
        if not gate.starved_mask:
            return _NONE
        granted: list[Ticket] = []
        while self._wait_lists.eligible and gate.starved_mask:
            ticket = self._grant(gate, now)
            if ticket is None:
                break
            granted.append(ticket)
        return granted

    def woken(self, now: float) -> tuple[Ticket, Sequence[ReplicaLoad]] | None:
        """Return a ticket that its API key's limit no longer blocks, and the replicas to which it
        may go.

        If another ticket goes before it at one of these replicas, that ticket is returned instead.
        The driver chooses one of the returned replicas, calls `grant`, takes the lease, and calls
        `woken` again. `None`: there is no such ticket.
        """
        wait_lists = self._wait_lists
        if wait_lists.short:
            wait_lists.refill(now)
        while wait_lists.woken:
            class_queue = next(iter(wait_lists.woken))
            found = self._next_woken(class_queue, now)
            if found is not None:
                return found
            # The tickets of this class queue may be sent later, when another gate opens to them.
            if class_queue.count:
                self.next_at = min(self.next_at, now + SOON_S)
            del wait_lists.woken[class_queue]
        return None

    def grant(self, ticket: Ticket, place: ReplicaLoad, now: float) -> None:
        """Note that the driver has chosen `place` for a ticket that `woken` returned.

        The driver takes the lease next.
        """
        self._give(ticket, self._gates.of(place), now)

    def moved(self, ticket: Ticket, place: ReplicaLoad, now: float) -> None:
        """Note that a retry of a sent request goes to another replica.

        The new lease is already taken.
        """
        run = ticket.run
        if ticket.state == SENT and run is not None:
            gate = self._gates.of(place)
            before = self._gates.by_place.get(run.place)
            if ticket.urgency == BATCH:
                if before is not None:
                    before.batch = max(0, before.batch - 1)
                    if self._rules.classes[BATCH].slots < 1.0:
                        self.next_at = min(self.next_at, now)  # It may take another one.
                gate.batch += 1
            if self._rules.reservations:
                if before is not None:
                    before.used -= ticket.reserved
                gate.used += ticket.reserved
            run.place = place
            run.since = now
            facts = gate.facts
            may_be_batch = gate.batch > 0 or facts.foreign_load > 0
            run.is_behind_batch = ticket.urgency <= HIGH and may_be_batch and facts.is_full()
            if run.is_away:
                run.is_away = False
                if self._rules.preemption and not run.has_shown:
                    self._preemption.moved(ticket, run)
            self._gates.look(gate)

    def failed(self, ticket: Ticket) -> None:
        """Note that an attempt of a sent request has failed and its lease is released.

        The request pauses before it is sent again (`moved`) or returns to the queue (`requeue`).
        Until then the request holds no capacity, so it is not preempted.
        """
        run = ticket.run
        assert run is not None
        run.is_away = True
        if self._rules.preemption or run.is_preempting:
            self._preemption.ended(ticket, run)

    # -- grants ---------------------------------------------------------------------------------

    def _fill_all(self, granted: list[Ticket], now: float) -> None:
        """Grant tickets to all replicas in rounds: one ticket per replica and round, the least
        loaded replica first.

        The tickets are added to `granted`, so that none is lost after an exception.
        """
        gates = [gate for gate in self._gates.by_place.values() if gate.starved_mask]
        gates.sort(key=_load)
        while gates and self._wait_lists.eligible:
            still: list[CachedGate] = []
            for gate in gates:
                ticket = self._grant(gate, now) if gate.starved_mask else None
                if ticket is not None:
                    granted.append(ticket)
                    still.append(gate)
            gates = still

    def _grant(self, gate: CachedGate, now: float) -> Ticket | None:
        if not self._wait_lists.eligible:
            return None
        ticket = self._choice.next_for(gate, self._wait_lists.active, now)
        if ticket is not None:
            self._give(ticket, gate, now)
        return ticket

    def _give(self, ticket: Ticket, gate: CachedGate, now: float) -> None:
        class_queue: ClassQueue = ticket.class_queue
        if class_queue.looking and class_queue.line.first(now) is not ticket:
            self.counts.skipped += 1
        class_queue.line.take(ticket, now)
        self._service_rate.served(ticket.urgency, now, cost(ticket), waited=True)
        self._wait_lists.left(ticket, SENT)
        if ticket.forecast is not None:
            self._forecaster.sent(ticket.forecast, ticket.urgency, now)
            ticket.forecast = None
        self._progress.sent(ticket.urgency, now)
        self._begin(ticket, gate, now, True, ticket.eligible_since)
        self.counts.granted[ticket.urgency] += 1
        for urgency in range(ticket.urgency):
            if self._wait_lists.eligible_of[urgency]:
                self.counts.inverted[ticket.urgency] += 1
                break
        # After a grant, early polls of the replica begin again with the shortest interval.
        gate.poll_s = 0.0
        gate.poll_at = min(gate.poll_at, now + EARLY_S)
        if self._wait_lists.eligible:  # The next ticket may need this early poll.
            self.next_at = min(self.next_at, gate.poll_at)
        self._gates.grant(gate, _uncached(ticket, gate.place), ticket.view.stream)

    def _next_woken(
        self, class_queue: ClassQueue, now: float
    ) -> tuple[Ticket, Sequence[ReplicaLoad]] | None:
        """Return the next ticket for one of the replicas that are open to a class queue, and all
        replicas that are open to this ticket."""
        first, eldest = class_queue.line.first(now), class_queue.eldest()
        if first is None or eldest is None:
            return None
        gate = self._choice.gate(class_queue, eldest, now)
        for place in self._open_of(self._pool.eligible(first.lane), gate):
            if place in first.excluded:
                continue
            ticket = self._choice.next_for(self._gates.of(place), self._wait_lists.active, now)
            if ticket is None:
                return None
            places = self._open_of(self._pool.eligible(ticket.lane), ticket.urgency)
            if ticket.excluded:
                places = [other for other in places if other not in ticket.excluded]
            return ticket, places or (place,)
        return None

    def _weigh(self, now: float) -> None:
        """Update the pool's token capacity, and drop token demand older than
        `reservations.WINDOW_S`."""
        self._weighed_at = now
        self._reservations.tick(now)
        self._reservations.capacity = self._gates.capacity()

    # -- counts of running requests -------------------------------------------------------------

    def _begin(
        self, ticket: Ticket, gate: CachedGate, now: float, is_charged: bool, since: float
    ) -> None:
        """Note that a request is sent.

        `since`: the time from which on the limit of its API key did not block the request. It
        equals `now` if the request did not wait.
        """
        ticket.state = SENT
        run = ticket.run
        if run is None:
            run = ticket.run = Run()
        run.begin(gate.place, now, is_charged, since)
        self._running[ticket] = None
        urgency = ticket.urgency
        if ticket.concurrency is not None:
            ticket.concurrency.take(urgency == BATCH, now)
        rules = self._rules
        if rules.preemption:
            self._preemption.sent(ticket, run)
        if urgency == BATCH:
            gate.batch += 1
        elif urgency <= HIGH and (gate.batch or gate.facts.foreign_load):
            self._behind_batch(ticket, run, gate, now)
        if rules.reservations:
            self._predict(ticket)
            self._reservations.sent(ticket.urgency, ticket.reserved, now)
            gate.used += ticket.reserved

    def _behind_batch(self, ticket: Ticket, run: Run, gate: CachedGate, now: float) -> None:
        """Note that an urgent request is sent to a replica on which batch requests may run.

        Requests of other clients may be batch requests of other routers.
        """
        if gate.facts.is_full():
            run.is_behind_batch = True
            if not gate.batch:
                return
            self.counts.engine_inverted[ticket.urgency] += 1
            if self._rules.preemption:
                self._preemption.blocked(ticket)
                self.next_at = min(self.next_at, now + self._rules.preempt_after_s)
        elif run.since < now:
            # If the request waited for a slot, it takes the only free slot of the replica. If more
            # slots are free, the request waited for another reason.
            run.is_behind_batch = gate.facts.has_one_slot()

    def _end(self, ticket: Ticket, run: Run) -> None:
        """Stop counting a request at its replica, because it has ended or returns to the queue."""
        del self._running[ticket]
        if self._rules.preemption or run.is_preempting:
            self._preemption.ended(ticket, run)
        if ticket.urgency == BATCH:
            gate = self._gates.by_place.get(run.place)
            if gate is not None:
                gate.batch = max(0, gate.batch - 1)
        if self._rules.reservations and ticket.reserved:
            self._reservations.ended(ticket.urgency, ticket.reserved)
            gate = self._gates.by_place.get(run.place)
            if gate is not None:
                gate.used -= ticket.reserved
            self._dirty = True


def _uncached(ticket: Ticket, place: ReplicaLoad) -> int:
    """Return a ticket's prompt tokens that a replica does not hold, by the last prefix lookup."""
    view, prefix = ticket.view, ticket.prefix
    if prefix is None:
        return view.prompt_tokens
    return max(0, view.prompt_tokens - int(prefix.blocks.get(place, 0) * view.block_tokens))


def _load(gate: CachedGate) -> int:
    return gate.place.load
