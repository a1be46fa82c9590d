"""The queue of one model pool. The package's docstring lists its guarantees and its calls.

Must never: do I/O, read a clock, or call back into its driver.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final, NoReturn

from policies.queueing.base import OrderPolicy
from policies.queueing.contract import make_order
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.run import Run
from policies.queueing.ticket import CLASSES, ENDED, INFINITY, NEW, SENT, WAITING, Ticket
from router.admission.counts import EVICTED, LEFT, QueueCounts
from router.admission.gates.gate_cache import CachedGate, GateCache
from router.admission.headroom import Headroom
from router.admission.output_lengths import OutputPredictor
from router.admission.pool import Pool
from router.admission.preemption import Preemption
from router.admission.rules import Rules
from router.admission.service_rate import ServiceRate
from router.admission.timers import EARLY_S, Expired, QueueTimers, Ticked
from router.admission.wait_forecast import WaitForecast, WaitForecaster
from router.admission.waiting.choice import Choice, cost
from router.admission.waiting.class_queue import ClassQueue
from router.admission.waiting.reservations import Reservations
from router.admission.waiting.wait_lists import Orders, WaitLists
from router.config.model import Config
from router.core.errors import Reason, RouterError
from router.core.replica_load import ReplicaLoad
from router.core.ttft_estimate import FEW, LATER, SOON, TtftEstimates
from router.core.urgency import BATCH, CRITICAL, HIGH
from router.core.urgency import CLASSES as NAMES

# How an attempt ended. The output predictor and the AIMD limit learn from it.
DONE: Final = 0
CANCELLED: Final = 1  # The attempt was cancelled, so its output length is not used.
REFUSED: Final = 2  # The replica had no capacity, or the attempt timed out.

_NOBODY: Final[tuple[ReplicaLoad, ...]] = ()
_NONE: Final[list[Ticket]] = []


class Queue:
    """Holds the waiting tickets of one model pool and grants them places at replicas."""

    __slots__ = (
        "_choice",
        "_dirty",
        "_estimates",
        "_forecaster",
        "_gates",
        "_known",
        "_order",
        "_orders",
        "_outputs",
        "_pool",
        "_preemption",
        "_reservations",
        "_rules",
        "_running",
        "_service_rate",
        "_timers",
        "_wait_lists",
        "_weighed_at",
        "config",
        "counts",
        "evicted",
        "headroom",
        "next_at",
    )

    def __init__(
        self,
        config: Config,
        pool: Pool,
        *,
        orders: Orders | None = None,
        estimates: TtftEstimates | None = None,
    ) -> None:
        """Create a queue from `config.queue` and `config.classes`.

        `orders`: shared by all queues between which tickets may move. `estimates`: what the router
        has learned about the errors of predicted times to first token; `None`: tickets get no
        estimate. Raises PolicyConfigError.
        """
        self.config = config
        self.counts = QueueCounts()
        # Latest time at which `tick` must be called next; infinity: no ticket waits.
        self.next_at = INFINITY
        # Tickets that were evicted. The driver reads them after `offer` and answers their clients.
        self.evicted: list[Expired] = []
        self._pool = pool
        self._orders = Orders() if orders is None else orders
        self._weighed_at = -INFINITY
        self._known = 0  # The number of replicas that the order policy was last told.
        # Reservations or replicas have changed, so any replica may accept one more request.
        self._dirty = False
        # The tickets that were sent and have not ended, in the order of dispatch. A reload may have
        # to count their tokens again.
        self._running: dict[Ticket, None] = {}
        self._outputs = OutputPredictor()
        self._service_rate = ServiceRate()
        self._forecaster = WaitForecaster()
        self._estimates = estimates
        self._order: OrderPolicy = make_order(config.queue.policy, config.queue.options)
        self._rules = Rules(config, by_class=self._order.by_class)
        classes = self._rules.classes
        self.headroom = Headroom()
        self._gates = GateCache(pool, classes, self.headroom)
        self._reservations = Reservations(
            classes, self._rules.reservations, self._rules.reserved_strictly
        )
        self._preemption = Preemption(self._rules)
        self._choice = Choice(self._rules, self._order, pool, self._reservations)
        self._wait_lists = WaitLists(
            self._rules,
            self._order,
            self._choice.stride,
            self._reservations,
            self._service_rate,
            self._orders,
        )
        self._timers = QueueTimers(
            self._rules,
            pool,
            self._wait_lists,
            self._gates,
            self._preemption,
            self.counts,
        )

    @property
    def is_fair(self) -> bool:
        """Whether the order policy shares capacity between flows.

        If it does, further requests of a user need no lower priority.
        """
        return self._order.is_fair

    def absent_s(self, urgency: int) -> float:
        """Return how many seconds requests of a class wait for a fit replica if there is none."""
        return self._rules.classes[urgency].absent_s

    @property
    def waiting(self) -> int:
        """The number of waiting tickets."""
        return self._wait_lists.count

    @property
    def depth(self) -> list[int]:
        """The number of waiting tickets, by class."""
        return [self._wait_lists.holders.depth(urgency) for urgency in range(CLASSES)]

    @property
    def eligible(self) -> list[int]:
        """The number of waiting tickets that their key's limit does not block, by class."""
        return list(self._wait_lists.eligible_of)

    @property
    def body_bytes(self) -> int:
        """The bytes of the bodies of all waiting requests."""
        return self._wait_lists.holders.held

    # -- arrivals -----------------------------------------------------------------------------

    def offer(self, ticket: Ticket, now: float) -> Sequence[ReplicaLoad]:
        """Take a new request. Returns the replicas to which it may be sent at once.

        The driver chooses one of them, takes its lease, and calls `sent` before any other method of
        the queue. If the result is empty, the ticket waits until it is granted a place or expires.
        Raises RouterError if the ticket may neither be sent nor wait; the ticket has then ended.
        """
        urgency = ticket.urgency
        rules = self._rules
        if not ticket.order:
            ticket.order = self._orders.next()
        ticket.queue = self
        concurrency = ticket.concurrency
        if concurrency is not None and self._wait_lists.short:
            self._wait_lists.refill(now)
        if not self._wait_lists.has(ticket.lane, urgency) and (
            concurrency is None or concurrency.free(urgency == BATCH) > 0
        ):
            places = self._open_of(self._pool.eligible(ticket.lane), urgency)
            if ticket.excluded:
                places = [place for place in places if place not in ticket.excluded]
            if places and (not rules.reservations or self._may_borrow(ticket)):
                ticket.forecast = None
                return places
        self._enter(ticket, now)
        return _NOBODY

    def passes(self, place: ReplicaLoad, urgency: int, now: float) -> bool:
        """Whether a request of a class may go to `place` without a ticket.

        If true, the driver takes the lease and calls `passed` when the request ends. If false, the
        driver offers a ticket. Call this only while `is_passable` is true.
        """
        if not self._gates.admits(place, urgency):
            return False
        self.counts.passed[urgency] += 1
        return True

    def open_to(
        self, lane: str, urgency: int, places: Sequence[ReplicaLoad]
    ) -> Sequence[ReplicaLoad]:
        """Return the replicas among `places` to which a retry may be sent at once.

        The gates of these replicas are open to the class of the retry, and no urgent request waits
        for a slot there. The result is empty if a ticket of this class and lane waits.
        """
        if self._wait_lists.has(lane, urgency):
            return _NOBODY
        return self._open_of(places, urgency)

    def _open_of(self, places: Sequence[ReplicaLoad], urgency: int) -> Sequence[ReplicaLoad]:
        """Return the replicas of `places` that take a request of the class now.

        While an urgent request waits for a free slot, a replica without one takes no other request.
        """
        found = self._gates.open_of(places, urgency)
        if urgency > HIGH and self._urgent_waits():
            return [place for place in found if not self._gates.of(place).needs_slot()]
        return found

    @property
    def is_passable(self) -> bool:
        """Whether `passes` may be called.

        `passes` may not be called if a ticket is ready to be sent, or if a feature must count every
        request (reservations, preemption).
        """
        rules = self._rules
        return not (self._wait_lists.eligible or rules.reservations or rules.preemption)

    def _may_borrow(self, ticket: Ticket) -> bool:
        self._predict(ticket)
        return self._reservations.allows(ticket.urgency, ticket.reserved)

    def _predict(self, ticket: Ticket) -> None:
        view = ticket.view
        if not view.decodes:
            view.output_tokens = 0
        elif view.output_tokens < 0:
            output = self._outputs.predict(ticket.flow)
            limit = view.output_limit
            view.output_tokens = min(output, limit) if limit >= 0 else output

    def _enter(self, ticket: Ticket, now: float) -> None:
        urgency = ticket.urgency
        wait_lists = self._wait_lists
        member = wait_lists.holders.join(ticket)
        if self._is_hopeless(ticket, now):
            ahead = wait_lists.ahead_at_least(ticket)
            wait_lists.holders.tidy(member)
            self._refuse(ticket, Reason.QUEUE_TOO_LONG, ahead, now)
        if ticket.forecast is not None:
            late = self._late(ticket, now)
            if late is not None:
                wait_lists.holders.tidy(member)
                ticket.state = ENDED
                self.counts.dropped[late.reason][urgency] += 1
                raise late
        if wait_lists.refuses(ticket) is not None:
            victims, reason = wait_lists.give_way(ticket)
            if reason is not None:
                ahead = wait_lists.ahead(ticket, reason) + 1
                wait_lists.holders.tidy(member)
                self._refuse(ticket, reason, ahead, now)
            for victim in victims:
                self.evict(victim, now)
        self.counts.queued[urgency] += 1
        self._wait(ticket, now)

    def _late(self, ticket: Ticket, now: float) -> RouterError | None:
        """Estimate the time to first token of a new request that has to wait.

        Returns the error if the request must be refused, because its first token would be late.
        """
        forecast: WaitForecast = ticket.forecast
        estimates, wait_lists, urgency = self._estimates, self._wait_lists, ticket.urgency
        concurrency = ticket.concurrency
        holders = wait_lists.holders
        if (
            estimates is None
            or not self._pool.eligible(ticket.lane)
            # The limit of its key may block the request for an unknown time.
            or (
                concurrency is not None
                and concurrency.free(urgency == BATCH) <= holders.waiting_of(ticket)
            )
        ):
            ticket.forecast = None
            return None
        self._forecaster.begins(
            forecast,
            urgency,
            wait_lists.eligible_of,
            holders.waiting_in(ticket),
            self._service_rate,
            now,
        )
        if forecast.wait_s < 0.0 or forecast.service_s <= 0.0:
            return None
        state = SOON if forecast.in_class <= FEW else LATER
        predicted_s = forecast.wait_s + forecast.service_s
        account = ticket.flow.account
        estimate = estimates.of(urgency, state, account, predicted_s, forecast.idle_s, now)
        forecast.estimate = estimate
        if not self._rules.classes[urgency].refuses_late:
            return None
        due = min(ticket.deadline, ticket.view.arrived + ticket.view.ttft_slo_s)
        if not estimate.is_late(due, now):
            return None
        estimate.void()
        return estimate.late_error(due)

    def refused_late(self, urgency: int, *, was_passed: bool) -> None:
        """Count a request that the driver refuses instead of sending it at once.

        `was_passed`: `passes` has counted it.
        """
        self.counts.dropped[Reason.TTFT_UNREACHABLE][urgency] += 1
        if was_passed:
            self.counts.passed[urgency] -= 1

    def _is_hopeless(self, ticket: Ticket, now: float) -> bool:
        """Whether, at the measured rate, a new request cannot be served before its deadline."""
        until = min(ticket.deadline, ticket.arrival + self._rules.classes[ticket.urgency].wait_s)
        if until == INFINITY or not self._wait_lists.eligible:
            return False
        least_s = self._service_rate.least_wait_s(self._wait_lists.ahead_at_least(ticket), now)
        return least_s > _HOPELESS * max(0.0, until - now)

    def _refuse(self, ticket: Ticket, reason: Reason, ahead: int, now: float) -> NoReturn:
        """Raise RouterError for a request that may not wait, and count it.

        `ahead`: how many tickets must leave before the request could wait.
        """
        urgency = ticket.urgency
        ticket.state = ENDED
        self.counts.dropped[reason][urgency] += 1
        raise RouterError(
            reason,
            f"{_REFUSED[reason]} (class {NAMES[urgency]})",
            retry_after_s=self._wait_lists.retry_after_s(urgency, ahead, now),
        )

    def relieve(self, newcomer: Ticket, now: float) -> bool:
        """Evict one waiting request to free a connection for a new request.

        The rules of eviction are those of a full queue. The ticket `newcomer` is not added to the
        queue; only its flow is used. Returns False if no request may be evicted for it.
        """
        depth = self.depth
        newcomer.urgency = max(range(CLASSES), key=depth.__getitem__)
        victim = self._victim(newcomer, Reason.QUEUE_FULL, depth[newcomer.urgency])
        if victim is None:
            return False
        self.evict(victim, now)
        return True

    def set_aside(self, newcomer: Ticket) -> Ticket | None:
        """Return the waiting ticket to evict first to free memory for a new request; `None`: there
        is none.

        The ticket is treated as evicted until `put_back`, so that the next call returns another
        one. Put all tickets back, the last one first, before any other call. Then call `evict` for
        those that must be evicted.
        """
        victim = self._victim(newcomer, Reason.QUEUE_BYTES_FULL, 0)
        if victim is not None:
            self._wait_lists.holders.set_aside(victim)
        return victim

    def put_back(self, ticket: Ticket) -> None:
        """Revert `set_aside` for a ticket; it waits as before."""
        self._wait_lists.holders.put_back(ticket)

    def _victim(self, newcomer: Ticket, reason: Reason, depth: int) -> Ticket | None:
        holders = self._wait_lists.holders
        member = holders.join(newcomer)
        victim = holders.victim(newcomer, reason, depth)
        holders.tidy(member)
        return victim

    def evict(self, ticket: Ticket, now: float) -> None:
        """End a waiting ticket with 429 `queue_evicted`, because a new request needs its space."""
        urgency = ticket.urgency
        retry_after_s = self._wait_lists.retry_after_s(
            urgency, self._wait_lists.holders.depth(urgency), now
        )
        self._wait_lists.drop(ticket, ENDED)
        self.counts.dropped[EVICTED][urgency] += 1
        self._dirty = True
        error = RouterError(
            Reason.QUEUE_EVICTED,
            f"the queue is full, and you have the most waiting requests (class {NAMES[urgency]})",
            retry_after_s=retry_after_s,
        )
        self.evicted.append(Expired(ticket, error))

    def _wait(self, ticket: Ticket, now: float) -> None:
        self._predict(ticket)
        if ticket.excluded:
            self._ease(ticket)
        # The first waiting ticket may need an early poll of a replica, so a tick is due soon; that
        # tick sets the time of the next one.
        soon_s = _SOON_S if self._wait_lists.count else _FIRST_S
        self.next_at = min(self.next_at, min(now + soon_s, max(now, ticket.deadline)))
        self._wait_lists.enter(ticket, now)

    # -- dispatches ---------------------------------------------------------------------------

    def sent(self, ticket: Ticket, place: ReplicaLoad, now: float) -> None:
        """Note that the driver has chosen `place`, one of the offered replicas, and taken the
        lease."""
        if ticket.state != NEW:
            return
        self.counts.passed[ticket.urgency] += 1
        is_charged = self._wait_lists.eligible > 0
        if is_charged:
            self._predict(ticket)
            try:
                self._order.passed(ticket, now)
            except Exception as err:
                self._orders.failures.add("passed", err)
            self._choice.stride.serves(ticket.urgency, cost(ticket), float(ticket.urgency))
            waits = self._wait_lists.eligible_of[ticket.urgency] > 0
            self._service_rate.served(ticket.urgency, now, waited=waits)
        gate = self._gates.of(place)
        self._begin(ticket, gate, now, is_charged, now)
        self._gates.look(gate)

    def _begin(
        self, ticket: Ticket, gate: CachedGate, now: float, is_charged: bool, since: float
    ) -> None:
        """Note that a request is sent.

        `since`: the time since which its key's limit did not block it; `now`: it did not wait.
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
        elif urgency <= HIGH and gate.batch:
            self._behind_batch(ticket, run, gate, now)
        if rules.reservations:
            self._predict(ticket)
            self._reservations.sent(ticket.urgency, ticket.reserved, now)
            gate.used += ticket.reserved

    def _behind_batch(self, ticket: Ticket, run: Run, gate: CachedGate, now: float) -> None:
        """Note an urgent request that is sent to a replica with batch requests."""
        if gate.facts.is_full():
            run.is_behind_batch = True
            self.counts.engine_inverted[ticket.urgency] += 1
            if self._rules.preemption:
                self._preemption.blocked(ticket)
                self.next_at = min(self.next_at, now + self._rules.preempt_after_s)
        elif run.since < now:
            # A request that waited for a slot takes the last one. If more are free, it waited for
            # something else.
            run.is_behind_batch = gate.facts.has_one_slot()

    def _end(self, ticket: Ticket, run: Run) -> None:
        """Stop counting a request at its replica."""
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
        if self._rules.reservations and now >= self._weighed_at + _LOOK_S:
            self._weigh(now)
        if self._wait_lists.short:
            self._wait_lists.refill(now)
        if not self._wait_lists.eligible:
            return _NONE
        if is_replanned or (self._dirty and self._rules.reservations):
            self._dirty = False
            return self._fill_all(now)
        if not gate.starved_mask:
            return _NONE
        granted: list[Ticket] = []
        while self._wait_lists.eligible and gate.starved_mask:
            ticket = self._grant(gate, now)
            if ticket is None:
                break
            granted.append(ticket)
        return granted

    def _weigh(self, now: float) -> None:
        """Update the pool's token capacity, and forget demand older than the window."""
        self._weighed_at = now
        self._reservations.tick(now)
        self._reservations.capacity = self._gates.capacity()

    def _fill_all(self, now: float) -> list[Ticket]:
        """Grant places at all replicas in turn, one per round, the least loaded replica first."""
        granted: list[Ticket] = []
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
        return granted

    def _grant(self, gate: CachedGate, now: float) -> Ticket | None:
        if not self._wait_lists.eligible:
            return None
        ticket = self._choice.next_for(gate, self._wait_lists.active, now)
        if ticket is not None:
            self._give(ticket, gate, now)
        return ticket

    def _give(self, ticket: Ticket, gate: CachedGate, now: float) -> None:
        row: ClassQueue = ticket.row
        if row.looking and row.line.first(now) is not ticket:
            self.counts.skipped += 1
        row.line.take(ticket, now)
        self._service_rate.served(ticket.urgency, now, waited=True)
        self._wait_lists.left(ticket, SENT)
        if ticket.forecast is not None:
            self._forecaster.sent(ticket.forecast, ticket.urgency, now)
            ticket.forecast = None
        self._begin(ticket, gate, now, True, ticket.eligible_since)
        self.counts.granted[ticket.urgency] += 1
        for urgency in range(ticket.urgency):
            if self._wait_lists.eligible_of[urgency]:
                self.counts.inverted[ticket.urgency] += 1
                break
        gate.poll_s = 0.0  # After a grant, early polls begin again with the short interval.
        gate.poll_at = min(gate.poll_at, now + EARLY_S)
        if self._wait_lists.eligible:  # Otherwise an early poll could be late for the next ticket.
            self.next_at = min(self.next_at, gate.poll_at)
        self._gates.grant(gate, _uncached(ticket, gate.place), ticket.view.stream)

    def woken(self, now: float) -> tuple[Ticket, Sequence[ReplicaLoad]] | None:
        """Return a ticket that may be sent because its key has a free place, and its replicas.

        If another ticket for these replicas goes first, that ticket is returned. The driver chooses
        one of the replicas, calls `grant`, takes the lease, and calls `woken` again. `None`: there
        is no such ticket.
        """
        wait_lists = self._wait_lists
        if wait_lists.short:
            wait_lists.refill(now)
        while wait_lists.woken:
            row = next(iter(wait_lists.woken))
            found = self._next_woken(row, now)
            if found is not None:
                return found
            # The tickets of this class queue may be sent later, when another gate opens to them.
            if row.count:
                self.next_at = min(self.next_at, now + _SOON_S)
            del wait_lists.woken[row]
        return None

    def _next_woken(
        self, row: ClassQueue, now: float
    ) -> tuple[Ticket, Sequence[ReplicaLoad]] | None:
        """Return the next ticket for a replica that is open to a class queue, and its replicas."""
        first, eldest = row.line.first(now), row.eldest()
        if first is None or eldest is None:
            return None
        gate = self._choice.gate(row, eldest, now)
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

    def grant(self, ticket: Ticket, place: ReplicaLoad, now: float) -> None:
        """Note that the driver has chosen `place` for a ticket that `woken` returned.

        Its lease is taken next.
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
                gate.batch += 1
            if self._rules.reservations:
                if before is not None:
                    before.used -= ticket.reserved
                gate.used += ticket.reserved
            run.place = place
            run.since = now
            run.is_behind_batch = ticket.urgency <= HIGH and gate.batch > 0 and gate.facts.is_full()
            if run.is_away:
                run.is_away = False
                if self._rules.preemption and not run.has_shown:
                    self._preemption.moved(ticket, run)
            self._gates.look(gate)

    def failed(self, ticket: Ticket) -> None:
        """Note that an attempt of a sent request has failed and its lease is released.

        The request pauses before it is sent again (`moved`) or returns to the queue (`requeue`).
        Until then it holds no capacity, so it is not preempted.
        """
        run = ticket.run
        assert run is not None
        run.is_away = True
        if self._rules.preemption or run.is_preempting:
            self._preemption.ended(ticket, run)

    # -- after the dispatch, and the end ------------------------------------------------------

    def allows_early_status(self, ticket: Ticket) -> bool:
        """Whether the client of a request may be sent an early 200 now.

        A waiting request with an early status is not evicted any more. The answer is False while a
        time limit may end the wait, or while no replica is fit, because then the right status may
        be 429, 503 or 408. Such a status can be sent only if no status was sent before.
        """
        is_limited = (
            ticket.deadline < INFINITY or self._rules.classes[ticket.urgency].wait_s < INFINITY
        )
        if ticket.state == WAITING:
            has_place = bool(self._pool.eligible(ticket.lane))
            return has_place and not is_limited and self._wait_lists.allows_early_status(ticket)
        if is_limited:
            # The request must not be preempted, because a time limit could end it while it waits
            # again.
            self.shown(ticket)
        ticket.has_early_status = True  # This is used if the ticket is put back into the queue.
        return True

    def first_content(self, ticket: Ticket, now: float, prefill_s: float = 0.0) -> None:
        """Note the first content of the request, and learn the headroom from it (`headroom.py`).

        `prefill_s`: the seconds of its prefill, as predicted at its dispatch; 0: unknown. A prompt
        that needs more than one prefill batch is late for that alone. A request that is not
        streamed shows its whole answer, so its time is not a TTFT.
        """
        run, view = ticket.run, ticket.view
        if (
            ticket.urgency <= HIGH
            and run is not None
            and not run.has_shown
            and view.stream
            and view.prompt_tokens <= PREFILL_TOKENS
        ):
            self.headroom.answered(
                now - run.since,
                prefill_s,
                self._rules.classes[HIGH].ttft_slo_s,
                now,
                is_behind_batch=run.is_behind_batch and not self._urgent_waits(),
            )
        self.shown(ticket)

    def _urgent_waits(self) -> bool:
        """Whether a critical or high request waits that no key's limit blocks."""
        eligible = self._wait_lists.eligible_of
        return eligible[CRITICAL] + eligible[HIGH] > 0

    def shown(self, ticket: Ticket) -> None:
        """Note that the client has the first content of the request; it is not preempted any
        more."""
        run = ticket.run
        if run is None:
            return
        run.has_shown = True
        if self._rules.preemption:
            self._preemption.shown(ticket)

    def settle(self, ticket: Ticket, tokens: int, output: int, now: float, end: int = DONE) -> None:
        """Take the end of a sent request, whose lease is released. The driver calls `freed` next.

        `tokens`, `output`: its true uncached prompt tokens and output tokens; a number below 0
        means unknown; the prediction is then kept. Only the first call for a sent ticket has an
        effect.
        """
        run = ticket.run
        if ticket.state != SENT or run is None:
            return
        ticket.state = ENDED
        self._end(ticket, run)
        if ticket.concurrency is not None:
            ticket.concurrency.give(ticket.urgency == BATCH, now)
        if end == DONE and output >= 0:
            self._outputs.learn(ticket.flow, output)
        view = ticket.view
        if run.is_charged:
            try:
                self._order.settled(
                    ticket,
                    tokens if tokens >= 0 else view.prompt_tokens,
                    output if output >= 0 else max(view.output_tokens, 0),
                )
            except Exception as err:
                self._orders.failures.add("settled", err)
        self._learn(run.place, view.prompt_tokens, output, run.sent_at, now, end)
        # The ticket may stay in memory for a while, and must not keep the replica in memory.
        run.place = None

    def passed(
        self,
        place: ReplicaLoad,
        flow: FlowIdentity,
        tokens: int,
        output: int,
        sent_at: float,
        now: float,
        end: int,
    ) -> None:
        """Take the end of a request that was sent without a ticket; see `settle`."""
        if end == DONE and output >= 0:
            self._outputs.learn(flow, output)
        self._learn(place, tokens, output, sent_at, now, end)

    def _learn(
        self, place: ReplicaLoad, tokens: int, output: int, sent_at: float, now: float, end: int
    ) -> None:
        """Update the AIMD limit of a replica without metrics."""
        gate = self._gates.by_place.get(place)
        if gate is None or gate.learned is None:
            return
        if end == REFUSED:
            gate.learned.failed(sent_at, now)
        elif end == DONE:
            work = 1.0 + max(output, 0) + tokens / 64.0
            others = place.waiting - place.foreign_waiting
            gate.learned.answered(sent_at, now, work, others)

    def leave(self, ticket: Ticket) -> bool:
        """Remove the ticket of a client that has disconnected, if it waits.

        Returns True if it waited. Returns False if the ticket had ended, was never queued, or was
        sent (then the driver must call `settle`).
        """
        if ticket.state == WAITING:
            self._wait_lists.drop(ticket, ENDED)
            self.counts.dropped[LEFT][ticket.urgency] += 1
            self._dirty = True
            return True
        if ticket.state == NEW:
            ticket.state = ENDED
        return False

    def requeue(self, ticket: Ticket, now: float, into: Queue | None = None) -> bool:
        """Put a sent request back into its old position, even if the queue is full.

        The lease of the request is released, and the driver calls `freed` next. `into`: the queue
        in which the request waits from now on, if that is another queue. Returns False if the
        ticket has already ended.
        """
        run = ticket.run
        if ticket.state != SENT or run is None:
            return False
        if run.is_preempting:
            run.preemptions += 1
            self.counts.preempted[ticket.urgency] += 1
        else:
            self.counts.queued[ticket.urgency] += 1
        self._end(ticket, run)
        if run.is_charged:
            try:
                self._order.refunded(ticket)
            except Exception as err:
                self._orders.failures.add("refunded", err)
        run.end(now)
        if into is None or into is self:
            self._wait(ticket, now)
        else:
            into.receive(ticket, now)
        # The key's place is released after the ticket was queued, so that the ticket may get this
        # place again if it is the first one of the key.
        if ticket.concurrency is not None:
            ticket.concurrency.give(ticket.urgency == BATCH, now)
        return True

    def unreached(self, place: ReplicaLoad, now: float) -> None:
        """Stop sending requests to a fit replica for a pause, because a connection to it failed.

        Without the pause, all waiting requests would be sent to a port that refuses connections.
        """
        gate = self._gates.of(place)
        self._gates.shut(gate, now)
        self.next_at = min(self.next_at, gate.shut_until)

    # -- time ---------------------------------------------------------------------------------

    def rebuilt(self, now: float) -> None:
        """Note that the set of fit replicas has changed. The driver calls `tick` next."""
        if self._wait_lists.count:
            self.next_at = min(self.next_at, now)
        for ticket in list(self._wait_lists.picky):
            self._ease(ticket)
            if not ticket.excluded:
                del self._wait_lists.picky[ticket]

    def _ease(self, ticket: Ticket) -> None:
        """Let a ticket use all fit replicas again if it has already tried all of them."""
        fit = self._pool.eligible(ticket.lane)
        if fit and all(place in ticket.excluded for place in fit):
            ticket.excluded = ()

    def tick(self, now: float) -> Ticked:
        """Do the periodic work (`timers.py`).

        The driver calls it at `next_at` or earlier; any other call of the queue may move `next_at`
        to an earlier time.
        """
        ticked = Ticked()
        self.next_at = INFINITY
        wait_lists, timers = self._wait_lists, self._timers
        if not wait_lists.count:
            return ticked
        self.headroom.look(now)
        if self._rules.reservations:
            self._weigh(now)
        timers.age(ticked, now)
        if wait_lists.short:
            wait_lists.refill(now)
        for gate in self._gates.by_place.values():
            if gate.is_shut:
                gate.is_shut = now < gate.shut_until
                if gate.is_shut:
                    ticked.next_at = min(ticked.next_at, gate.shut_until)
            self._gates.look(gate)
        self._gates.look_if_replanned()
        if len(self._gates.by_place) != self._known:
            self._known = len(self._gates.by_place)
            try:
                self._order.sized(self._known)
            except Exception as err:
                self._orders.failures.add("sized", err)
        self._dirty = False
        ticked.granted = self._fill_all(now)
        if wait_lists.count:
            if self._rules.reservations:
                ticked.next_at = min(ticked.next_at, now + _LOOK_S)
            timers.urge(ticked, now)
            # A grant may have set an earlier time.
            self.next_at = min(self.next_at, ticked.next_at)
        return ticked

    # -- the fleet, and reloads ---------------------------------------------------------------

    def gone(self, place: ReplicaLoad) -> None:
        """Forget a replica that has left the fleet.

        Requests that were sent to it are settled as usual.
        """
        self._gates.forget(place)
        self._dirty = True

    def places(self) -> list[ReplicaLoad]:
        """Return the replicas for which this queue has a gate."""
        return list(self._gates.by_place)

    def waiting_of(self, models: Container[str]) -> int:
        """Return the number of tickets that wait for these models."""
        return sum(1 for ticket in self._wait_lists.tickets() if ticket.model in models)

    def parted(self, queues: Mapping[str, Queue], default: Queue) -> list[Ticket]:
        """Remove and return the tickets whose model now belongs to another queue.

        `default`: the queue of models that no replica serves.
        """
        found = [t for t in self._wait_lists.tickets() if queues.get(t.model, default) is not self]
        for ticket in found:
            self._wait_lists.drop(ticket, NEW)
        return found

    def receive(self, ticket: Ticket, now: float) -> None:
        """Take over a waiting ticket of another queue, even if this queue is full."""
        ticket.queue = self
        self._wait(ticket, now)

    def adopt(self, config: Config, made: OrderPolicy | None = None) -> None:
        """Apply another configuration. Waiting tickets keep their order of arrival.

        The driver calls `tick` next. `made`: the order policy that `config` names, created for this
        queue. Without it, the policy is created here. If that fails, this raises PolicyConfigError
        and changes nothing.
        """
        before, after = self.config.queue, config.queue
        is_other = (after.policy, after.options) != (before.policy, before.options)
        order = self._order
        if is_other:
            order = make_order(after.policy, after.options) if made is None else made
        was_reserved = self._rules.reservations
        self.config = config
        self._order = order
        self._rules = rules = Rules(config, by_class=order.by_class)
        self._gates.adopt(rules.classes)
        self._reservations.adopt(rules.classes, rules.reservations, rules.reserved_strictly)
        if rules.reservations != was_reserved:
            self._recount()
        self._preemption.adopt(rules, self._running)
        self._choice.adopt(rules, order)
        self._wait_lists.adopt(rules, order)
        self._timers.adopt(rules)
        if is_other:
            self._known = 0
            self._wait_lists.reline()

    def _recount(self) -> None:
        """Count the tokens of all requests again, because reservations were switched on or off."""
        is_on = self._rules.reservations
        used, waiting = [0] * CLASSES, [0] * CLASSES
        for gate in self._gates.by_place.values():
            gate.used = 0
        for ticket in self._running if is_on else ():
            self._predict(ticket)
            used[ticket.urgency] += ticket.reserved
            at = self._gates.by_place.get(ticket.place)
            if at is not None:
                at.used += ticket.reserved
        for ticket in self._wait_lists.tickets() if is_on else ():
            if ticket.blocked_in is None:
                waiting[ticket.urgency] += ticket.reserved
        self._reservations.recount(used, waiting)
        self._reservations.capacity = self._gates.capacity()
        self._weighed_at = -INFINITY
        self._dirty = True

    # -- for reports, metrics and tests -------------------------------------------------------

    def flows(self) -> dict[tuple[str, str], int]:
        """Return the number of waiting tickets, by account and member."""
        return self._wait_lists.waiting_by_flow()

    def ages_s(self, now: float) -> list[float]:
        """Return the seconds that each class's oldest ticket has waited; 0: no ticket waits."""
        return self._wait_lists.ages_s(now)

    def tickets(self) -> list[Ticket]:
        """Return all waiting tickets, in no particular order."""
        return self._wait_lists.tickets()

    def held_tokens(self, urgency: int) -> float:
        """Return the tokens that are reserved for the class now, in addition to those it uses."""
        return self._reservations.held(urgency)

    def used_tokens(self, urgency: int) -> int:
        return self._reservations.used[urgency]

    def is_open(self, place: ReplicaLoad, urgency: int) -> bool:
        """Whether a replica may take one more request of the class."""
        return bool(self._gates.of(place).mask & (1 << urgency))

    def why_closed(self, place: ReplicaLoad, urgency: int) -> str:
        """Return why a replica takes no more requests of the class; "": it takes one.

        `connect` means a failed connection (`GateCache.shut`). `gate.OBSTACLES` lists the other
        texts.
        """
        return self._gates.why_closed(place, urgency)


_SOON_S: Final = 0.1
# The default `queue.gates.prefill_tokens`: one prefill batch of an engine.
PREFILL_TOKENS: Final = 8192
# Seconds from the start of the first ticket's wait to the next tick: the ticket may need an early
# poll.
_FIRST_S: Final = 0.02
_LOOK_S: Final = 1.0  # Seconds between two updates of the reservations.
# A request is refused at once if its expected wait is this many times longer than its time limit.
# The factor is large because the measured rate can be three times too low: all requests may begin
# and end at the same times, two minutes apart.
_HOPELESS: Final = 3.0
_REFUSED: Final = {
    Reason.QUEUE_FULL: "the limit of waiting requests is reached",
    Reason.QUEUE_FLOW_FULL: "your limit of waiting requests is reached",
    Reason.QUEUE_BYTES_FULL: "the limit of memory for waiting requests is reached",
    Reason.QUEUE_TOO_LONG: "the expected wait in the queue is longer than this request may wait",
}


def _uncached(ticket: Ticket, place: ReplicaLoad) -> int:
    """Return a ticket's prompt tokens that a replica does not hold, by the last prefix lookup."""
    tokens = ticket.view.prompt_tokens
    prefix = ticket.prefix
    return tokens if prefix is None else max(0, tokens - int(prefix.tokens_at(place)))


def _load(gate: CachedGate) -> int:
    return gate.place.load
