"""The queue of one model pool. The package's docstring lists its guarantees and its calls.

Must never: do I/O, read a clock, or call back into its driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from policies.queueing.base import OrderPolicy
from policies.queueing.ticket import ENDED, INFINITY, NEW, SENT, WAITING, Ticket
from router.admission.counts import LEFT
from router.admission.due import SOON_S, Ticked
from router.admission.gates.gate_cache import CachedGate
from router.admission.queue_state import QueueState
from router.admission.timers import EARLY_S
from router.admission.waiting.choice import cost
from router.admission.waiting.class_queue import ClassQueue
from router.config.model import Config
from router.core.errors import Reason, RouterError
from router.core.replica_load import ReplicaLoad
from router.core.urgency import BATCH, CLASSES as NAMES

_AGAIN_S: Final = 1.0  # Delay in seconds of the next tick after a tick that raised an exception.
_NONE: Final[list[Ticket]] = []
_NOBODY: Final[tuple[ReplicaLoad, ...]] = ()
# Seconds to the next `tick` after the first request has begun to wait. For this request, the
# metrics of a replica may have to be polled early.
_FIRST_S: Final = 0.02
# A request is refused at once if its expected wait is this many times longer than its time limit.
# The factor is large because the measured service rate can be three times too low: all requests may
# begin and end at the same times, two minutes apart.
_HOPELESS: Final = 3.0
_REFUSED: Final = {
    Reason.QUEUE_FULL: "the limit of waiting requests is reached",
    Reason.QUEUE_FLOW_FULL: "your limit of waiting requests is reached",
    Reason.QUEUE_BYTES_FULL: "the limit of memory for waiting requests is reached",
    Reason.QUEUE_TOO_LONG: "the expected wait in the queue is longer than this request may wait",
}


class Queue(QueueState):
    """Holds the waiting tickets of one model pool and grants them places at replicas."""

    __slots__ = ()

    # -- arrivals -------------------------------------------------------------------------------

    def offer(self, ticket: Ticket, now: float) -> Sequence[ReplicaLoad]:
        """Take a new request. Returns the replicas to which it may be sent at once.

        The driver chooses one of the returned replicas, takes a lease on it, and calls `sent`
        before any other method of the queue. If the result is empty, the ticket waits until a
        replica has capacity for it or until it expires. Raises RouterError if the ticket may
        neither be sent nor wait; the ticket has then ended.
        """
        urgency = ticket.urgency
        if not ticket.order:
            ticket.order = self._orders.next()
        ticket.queue = self
        concurrency = ticket.concurrency
        if concurrency is not None and self.wait_lists.short:
            self.wait_lists.refill(now)
        if not self.wait_lists.is_before(ticket.lane, urgency, now) and (
            concurrency is None or concurrency.free(urgency == BATCH) > 0
        ):
            places = self._open_of(self.pool.eligible(ticket.lane), urgency)
            if ticket.excluded:
                places = [place for place in places if place not in ticket.excluded]
            if places and self.elsewhere.waits:
                places = self._not_left(places, ticket, now)
            if places and self._extras.allow(ticket):
                ticket.forecast = None
                return places
        self._enter(ticket, now)
        return _NOBODY

    def _not_left(
        self, places: Sequence[ReplicaLoad], ticket: Ticket, now: float
    ) -> Sequence[ReplicaLoad]:
        """Return the replicas that are not left free for a request of another router."""
        level = float(ticket.urgency)
        if not self.yielding.is_behind(ticket, level, now):
            return places
        found: list[ReplicaLoad] = []
        for place in places:
            gate = self.gates.of(place)
            if self.yielding.holds(gate, ticket, level, now):
                if now < gate.kept_until:  # Else it is kept until its load changes.
                    self.due.by(gate.kept_until)
            else:
                found.append(place)
        return found

    def receive(self, ticket: Ticket, now: float) -> None:
        """Take over a waiting ticket of another queue, even if this queue is full."""
        ticket.queue = self
        self._wait(ticket, now)

    def _enter(self, ticket: Ticket, now: float) -> None:
        urgency = ticket.urgency
        wait_lists = self.wait_lists
        member = wait_lists.holders.join(ticket)
        if self._is_hopeless(ticket, now):
            ahead = wait_lists.ahead_at_least(ticket)
            wait_lists.holders.tidy(member)
            self._refuse(ticket, Reason.QUEUE_TOO_LONG, ahead, now)
        if ticket.forecast is not None:
            late = self._forecasts.late(ticket, now)
            if late is not None:
                wait_lists.holders.tidy(member)
                ticket.state = ENDED
                self.counts.dropped[late.reason][urgency] += 1
                raise late
        if self.evictions.refuses(ticket) is not None:
            victims, reason = self.evictions.give_way(ticket)
            if reason is not None:
                ahead = wait_lists.ahead(ticket, reason) + 1
                wait_lists.holders.tidy(member)
                self._refuse(ticket, reason, ahead, now)
            for victim in victims:
                self.evictions.evict(victim, now)
        self.counts.queued[urgency] += 1
        if ticket.forecast is not None:
            self._forecasts.begins(ticket)
        self._wait(ticket, now)

    def _wait(self, ticket: Ticket, now: float) -> None:
        self.runs.predict(ticket)
        if ticket.excluded:
            self._ease(ticket)
        # For the first waiting ticket, a replica's metrics may have to be polled early, so `tick`
        # is called soon. It then sets the time of its next call.
        soon_s = SOON_S if self.wait_lists.count else _FIRST_S
        self.due.by(min(now + soon_s, max(now, ticket.deadline)))
        self.wait_lists.enter(ticket, now)

    def _ease(self, ticket: Ticket) -> None:
        """Let a ticket use all fit replicas again if it has already tried all of them."""
        fit = self.pool.eligible(ticket.lane)
        if fit and all(place in ticket.excluded for place in fit):
            ticket.excluded = ()

    def _is_hopeless(self, ticket: Ticket, now: float) -> bool:
        """Whether, at the measured service rate, a new request cannot be served before its
        deadline."""
        until = min(ticket.deadline, ticket.arrival + self.rules.classes[ticket.urgency].wait_s)
        if until == INFINITY or not self.wait_lists.eligible:
            return False
        least_s = self._service_rate.least_wait_s(self.wait_lists.ahead_at_least(ticket), now)
        return least_s > _HOPELESS * max(0.0, until - now)

    def _refuse(self, ticket: Ticket, reason: Reason, ahead: int, now: float) -> NoReturn:
        """Raise RouterError for a request that may not wait, and count it.

        `ahead`: how many waiting tickets must leave the queue before the request could wait.
        """
        urgency = ticket.urgency
        ticket.state = ENDED
        self.counts.dropped[reason][urgency] += 1
        raise RouterError(
            reason,
            f"{_REFUSED[reason]} (class {NAMES[urgency]})",
            retry_after_s=self.wait_lists.retry_after_s(urgency, ahead, now),
        )

    # -- dispatches -----------------------------------------------------------------------------

    def sent(self, ticket: Ticket, place: ReplicaLoad, now: float) -> None:
        """Note that the driver has sent a new request to `place`, one of the replicas that `offer`
        returned, and has taken the lease."""
        if ticket.state != NEW:
            return
        self.counts.passed[ticket.urgency] += 1
        is_charged = self.wait_lists.eligible > 0 or self.elsewhere.waits
        if is_charged:
            self.runs.predict(ticket)
            try:
                self.rules.order.passed(ticket, now)
            except Exception as err:
                self._orders.failures.add("passed", err)
            tokens = cost(ticket)
            self.stride.serves(ticket.urgency, tokens, float(ticket.urgency))
            waits = self.wait_lists.eligible_of[ticket.urgency] > 0
            self._service_rate.served(ticket.urgency, now, tokens, waited=waits)
        gate = self.gates.of(place)
        self.runs.begin(ticket, gate, now, is_charged, now)
        self.gates.look(gate)

    def freed(self, place: ReplicaLoad, now: float) -> list[Ticket]:
        """Return the tickets to send now, each to its `place`, after the facts of `place` changed.

        Facts change when a lease is released or taken outside of `sent`, first content arrives, a
        poll returns or fails, or the replica becomes fit. The driver takes the leases of all
        returned tickets before any other call.
        """
        gates = self.gates
        gate = gates.of(place)
        gates.look(gate)
        are_more_open = gates.look_if_replanned()
        for extra in self._extras.all:
            are_more_open = extra.opens(now) or are_more_open
        if self.wait_lists.short:
            self.wait_lists.refill(now)
        if not self.wait_lists.eligible:
            return _NONE
        if are_more_open:
            filled: list[Ticket] = []
            self._fill_all(filled, now)
            return filled
        if not gate.starved_mask:
            return _NONE
        granted: list[Ticket] = []
        while self.wait_lists.eligible and gate.starved_mask:
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
        wait_lists = self.wait_lists
        if wait_lists.short:
            wait_lists.refill(now)
        while wait_lists.woken:
            class_queue = next(iter(wait_lists.woken))
            found = self._next_woken(class_queue, now)
            if found is not None:
                return found
            # The tickets of this class queue may be sent later, when another gate opens to them.
            if class_queue.count:
                self.due.by(now + SOON_S)
            del wait_lists.woken[class_queue]
        return None

    def grant(self, ticket: Ticket, place: ReplicaLoad, now: float) -> None:
        """Note that the driver has chosen `place` for a ticket that `woken` returned.

        The driver takes the lease next.
        """
        self._give(ticket, self.gates.of(place), now)

    def _fill_all(self, granted: list[Ticket], now: float) -> None:
        """Grant tickets to all replicas in rounds: one ticket per replica and round, the least
        loaded replica first.

        The tickets are added to `granted`, so that none is lost after an exception.
        """
        gates = [gate for gate in self.gates.by_place.values() if gate.starved_mask]
        gates.sort(key=_load)
        while gates and self.wait_lists.eligible:
            still: list[CachedGate] = []
            for gate in gates:
                ticket = self._grant(gate, now) if gate.starved_mask else None
                if ticket is not None:
                    granted.append(ticket)
                    still.append(gate)
            gates = still

    def _grant(self, gate: CachedGate, now: float) -> Ticket | None:
        if not self.wait_lists.eligible:
            return None
        ticket = self._choice.next_for(gate, self.wait_lists.active, now)
        if ticket is not None:
            self._give(ticket, gate, now)
        elif now < gate.kept_until:
            self.due.by(gate.kept_until)
        return ticket

    def _give(self, ticket: Ticket, gate: CachedGate, now: float) -> None:
        class_queue: ClassQueue = ticket.class_queue
        if class_queue.looking and class_queue.line.first(now) is not ticket:
            self.counts.skipped += 1
        class_queue.line.take(ticket, now)
        self._service_rate.served(ticket.urgency, now, cost(ticket), waited=True)
        self.wait_lists.left(ticket, SENT)
        self._forecasts.sent(ticket, now)
        self.runs.begin(ticket, gate, now, True, ticket.eligible_since)
        self.counts.granted[ticket.urgency] += 1
        for urgency in range(ticket.urgency):
            if self.wait_lists.eligible_of[urgency]:
                self.counts.inverted[ticket.urgency] += 1
                break
        # After a grant, early polls of the replica begin again with the shortest interval.
        gate.poll_s = 0.0
        gate.poll_at = min(gate.poll_at, now + EARLY_S)
        if self.wait_lists.eligible:  # The next ticket may need this early poll.
            self.due.by(gate.poll_at)
        self.gates.grant(gate, _uncached(ticket, gate.place), ticket.view.stream)

    def _next_woken(
        self, class_queue: ClassQueue, now: float
    ) -> tuple[Ticket, Sequence[ReplicaLoad]] | None:
        """Return the next ticket for one of the replicas that are open to a class queue, and all
        replicas that are open to this ticket."""
        first, eldest = class_queue.line.first(now), class_queue.eldest()
        if first is None or eldest is None:
            return None
        gate = self._choice.gate(class_queue, eldest, now)
        for place in self._open_of(self.pool.eligible(first.lane), gate):
            if place in first.excluded:
                continue
            ticket = self._choice.next_for(self.gates.of(place), self.wait_lists.active, now)
            if ticket is None:
                return None
            places = self._open_of(self.pool.eligible(ticket.lane), ticket.urgency)
            if ticket.excluded:
                places = [other for other in places if other not in ticket.excluded]
            return ticket, places or (place,)
        return None

    # -- tickets that leave or return -----------------------------------------------------------

    def leave(self, ticket: Ticket) -> bool:
        """Remove the ticket of a client that has disconnected, if it waits.

        Returns True if it waited. Returns False if the ticket had ended, was never queued, or was
        sent (then the driver must call `runs.settle`).
        """
        if ticket.state == WAITING:
            self.wait_lists.drop(ticket, ENDED)
            self.counts.dropped[LEFT][ticket.urgency] += 1
            return True
        if ticket.state == NEW:
            ticket.state = ENDED
        return False

    def requeue(
        self,
        ticket: Ticket,
        now: float,
        into: Queue | None = None,
        *,
        is_preempted: bool = False,
    ) -> bool:
        """Put a sent request back into its old position, even if the queue is full.

        The lease of the request is released, and the driver calls `freed` next. `into`: the queue
        in which the request waits from now on, if that is another queue. `is_preempted`: a more
        urgent request takes its place. Returns False if the ticket has already ended.
        """
        run = ticket.run
        if ticket.state != SENT or run is None:
            return False
        if is_preempted:
            run.preemptions += 1
            self.counts.preempted[ticket.urgency] += 1
        else:
            self.counts.queued[ticket.urgency] += 1
        self.runs.end(ticket, run)
        if run.is_charged:
            try:
                self.rules.order.refunded(ticket)
            except Exception as err:
                self._orders.failures.add("refunded", err)
        run.end(now)
        if into is None or into is self:
            self._wait(ticket, now)
        else:
            into.receive(ticket, now)
        # The limit of the API key is released only after the ticket was queued. So the same ticket
        # may be sent again at once if it is the first waiting ticket of the key.
        if ticket.concurrency is not None:
            ticket.concurrency.give(ticket.urgency == BATCH, now)
        return True

    def unreached(self, place: ReplicaLoad, now: float) -> None:
        """Stop sending requests to a fit replica for a pause, because a connection to it failed.

        Without the pause, all waiting requests would be sent to a port that refuses connections.
        """
        gate = self.gates.of(place)
        self.gates.shut(gate, now)
        self.due.by(gate.shut_until)

    # -- time -----------------------------------------------------------------------------------

    def rebuilt(self, now: float) -> None:
        """Note that the set of fit replicas has changed. The driver calls `tick` next."""
        if self.wait_lists.count:
            self.due.by(now)
        for ticket in list(self.wait_lists.picky):
            self._ease(ticket)
            if not ticket.excluded:
                del self.wait_lists.picky[ticket]

    def tick(self, now: float) -> Ticked:
        """Do the periodic work (`timers.py`).

        The driver calls `tick` at `next_at` or earlier; any other call of the queue may move
        `next_at` to an earlier time.
        """
        ticked = Ticked()
        self.due.at = INFINITY
        if self.wait_lists.count:
            try:
                self._tick(ticked, now)
            except Exception as err:
                ticked.error = err
                self.due.at = now + _AGAIN_S
        return ticked

    def _tick(self, ticked: Ticked, now: float) -> None:
        wait_lists, timers = self.wait_lists, self._timers
        self.headroom.look(now)
        for extra in self._extras.all:
            extra.ticks(now)
        timers.age(ticked, now)
        if wait_lists.short:
            wait_lists.refill(now)
        for gate in self.gates.by_place.values():
            if gate.is_shut:
                gate.is_shut = now < gate.shut_until
                if gate.is_shut:
                    ticked.next_at = min(ticked.next_at, gate.shut_until)
            self.gates.look(gate)
        self.gates.look_if_replanned()
        if len(self.gates.by_place) != self._known:
            self._known = len(self.gates.by_place)
            try:
                self.rules.order.sized(self._known)
            except Exception as err:
                self._orders.failures.add("sized", err)
        self._fill_all(ticked.granted, now)
        if wait_lists.count:
            for extra in self._extras.all:
                extra.urges(ticked, now)
            timers.poll_early(ticked, now)
            # A grant may have set an earlier time.
            self.due.by(ticked.next_at)

    # -- the fleet, and reloads -----------------------------------------------------------------

    def gone(self, place: ReplicaLoad) -> None:
        """Forget a replica that has left the fleet.

        Requests that were sent to it are settled as usual.
        """
        self.gates.forget(place)
        for extra in self._extras.all:
            extra.gone(place, None)

    def give_place(self, place: ReplicaLoad, to: Queue) -> None:
        """Move a replica to another queue, with what is known about its connections and its limit.

        The driver then hands over the requests that were sent to the replica (`hand_over`).
        """
        gate = self.gates.forget(place)
        for extra, others in zip(self._extras.all, to._extras.all, strict=True):
            extra.gone(place, others)
        if gate is not None:
            to.gates.receive(gate)
            if gate.is_shut:
                to.due.by(gate.shut_until)

    def parted(self, queues: Mapping[str, Queue], default: Queue) -> list[Ticket]:
        """Remove and return the tickets whose model now belongs to another queue.

        `default`: the queue of models that no replica serves.
        """
        found = [t for t in self.wait_lists.tickets() if queues.get(t.model, default) is not self]
        for ticket in found:
            self.wait_lists.drop(ticket, NEW)
            if ticket.forecast is not None:
                ticket.forecast.is_waiting = False
        return found

    def set_lane(self, ticket: Ticket, lane: str, now: float) -> None:
        """Change the lane of a ticket, because its request may use other replicas than before.

        A waiting ticket keeps its place in the order of arrival.
        """
        if ticket.state != WAITING:
            ticket.lane = lane
            return
        self.wait_lists.drop(ticket, NEW)
        ticket.lane = lane
        self._wait(ticket, now)

    def adopt(self, config: Config, made: OrderPolicy | None = None) -> None:
        """Apply another configuration. Waiting tickets keep their order of arrival.

        The driver calls `tick` next. `made`: see `Rules.adopt`. Raises PolicyConfigError, and then
        changes nothing. The extras of the configuration must be importable (`load_extras`).
        """
        rules = self.rules
        is_other = rules.adopt(config, made)
        self.gates.look_at_all()
        self._extras.adopt(config, self)
        self._forecasts.turns.outdate()
        self.wait_lists.holders.adopt(rules.bytes)
        if is_other:
            self._known = 0
            for ticket in self.runs.tickets:
                # The new policy has charged none of these, and its unit may be another one.
                assert ticket.run is not None
                ticket.run.is_charged = False
            self.wait_lists.reline()


def _uncached(ticket: Ticket, place: ReplicaLoad) -> int:
    """Return a ticket's prompt tokens that a replica does not hold, by the last prefix lookup."""
    view, prefix = ticket.view, ticket.prefix
    if prefix is None:
        return view.prompt_tokens
    return max(0, view.prompt_tokens - int(prefix.blocks.get(place, 0) * view.block_tokens))


def _load(gate: CachedGate) -> int:
    return gate.place.load
