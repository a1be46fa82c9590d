"""Decides whether a new request is sent at once, waits, is refused, or evicts waiting requests.

Must never: choose among waiting tickets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from policies.queueing.ticket import CLASSES, ENDED, INFINITY, Ticket
from router.admission.counts import EVICTED
from router.admission.queue_state import QueueState
from router.admission.timers import SOON_S, Expired
from router.admission.wait_forecast import WaitForecast
from router.core.errors import Reason, RouterError
from router.core.replica_load import ReplicaLoad
from router.core.ttft_estimate import FEW, LATER, SOON
from router.core.urgency import BATCH
from router.core.urgency import CLASSES as NAMES

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


class Arrivals(QueueState):
    """Takes new requests, and evicts waiting ones for them."""

    __slots__ = ()

    def offer(self, ticket: Ticket, now: float) -> Sequence[ReplicaLoad]:
        """Take a new request. Returns the replicas to which it may be sent at once.

        The driver chooses one of the returned replicas, takes a lease on it, and calls `sent`
        before any other method of the queue. If the result is empty, the ticket waits until a
        replica has capacity for it or until it expires. Raises RouterError if the ticket may
        neither be sent nor wait; the ticket has then ended.
        """
        urgency = ticket.urgency
        rules = self._rules
        if not ticket.order:
            ticket.order = self._orders.next()
        ticket.queue = self
        concurrency = ticket.concurrency
        if concurrency is not None and self._wait_lists.short:
            self._wait_lists.refill(now)
        if not self._wait_lists.is_before(ticket.lane, urgency, now) and (
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

        If the result is true, the driver takes a lease on `place` and calls `passed` when the
        request ends. If the result is false, the driver calls `offer` with a ticket. Call this only
        while `is_passable` is true. A request of a class with a maximum share of slots needs a
        ticket, because its requests are counted.
        """
        if self._rules.classes[urgency].slots < 1.0 or not self._gates.admits(place, urgency):
            return False
        self.counts.passed[urgency] += 1
        return True

    @property
    def is_passable(self) -> bool:
        """Whether `passes` may be called.

        `passes` may not be called if a ticket is ready to be sent, or if a feature must count every
        request (reservations, preemption).
        """
        rules = self._rules
        return not (self._wait_lists.eligible or rules.reservations or rules.preemption)

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

    def refused_late(self, urgency: int, *, was_passed: bool) -> None:
        """Count a request that the driver refuses instead of sending it at once.

        `was_passed`: whether `passes` has already counted the request as sent.
        """
        self.counts.dropped[Reason.TTFT_UNREACHABLE][urgency] += 1
        if was_passed:
            self.counts.passed[urgency] -= 1

    def receive(self, ticket: Ticket, now: float) -> None:
        """Take over a waiting ticket of another queue, even if this queue is full."""
        ticket.queue = self
        self._wait(ticket, now)

    # -- a request that has to wait -------------------------------------------------------------

    def _may_borrow(self, ticket: Ticket) -> bool:
        self._predict(ticket)
        return self._reservations.allows(ticket.urgency, ticket.reserved)

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
        forecast = ticket.forecast
        if forecast is not None and forecast.estimate is not None:
            self._progress.begins(forecast, urgency, self._turns)
        self._wait(ticket, now)

    def _wait(self, ticket: Ticket, now: float) -> None:
        self._predict(ticket)
        if ticket.excluded:
            self._ease(ticket)
        # For the first waiting ticket, a replica's metrics may have to be polled early, so `tick`
        # is called soon. It then sets the time of its next call.
        soon_s = SOON_S if self._wait_lists.count else _FIRST_S
        self.next_at = min(self.next_at, min(now + soon_s, max(now, ticket.deadline)))
        self._wait_lists.enter(ticket, now)

    def _ease(self, ticket: Ticket) -> None:
        """Let a ticket use all fit replicas again if it has already tried all of them."""
        fit = self._pool.eligible(ticket.lane)
        if fit and all(place in ticket.excluded for place in fit):
            ticket.excluded = ()

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
            # The limit of its API key may block the request for an unknown time.
            or (
                concurrency is not None
                and concurrency.free(urgency == BATCH) <= holders.waiting_of(ticket)
            )
        ):
            ticket.forecast = None
            return None
        if not self._turns.is_fresh(urgency, wait_lists.eligible_of[urgency], now):
            self._model_turns(now)
        self._forecaster.begins(
            forecast,
            urgency,
            wait_lists.eligible_of[urgency],
            holders.waiting_in(ticket),
            self._service_rate,
            self._turns,
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

    def _model_turns(self, now: float) -> None:
        """Predict the service of all classes from the present state of the queue."""
        turns, wait_lists, counts = self._turns, self._wait_lists, self.counts
        turns.rates.count(counts.arrived_to_be_sent(), now)
        capacity = self._service_rate.cost_per_s(now) if wait_lists.eligible else 0.0
        ages_s = wait_lists.ages_s(now, is_eligible=True)
        turns.compute(wait_lists.eligible_of, ages_s, capacity, now)

    def _is_hopeless(self, ticket: Ticket, now: float) -> bool:
        """Whether, at the measured service rate, a new request cannot be served before its
        deadline."""
        until = min(ticket.deadline, ticket.arrival + self._rules.classes[ticket.urgency].wait_s)
        if until == INFINITY or not self._wait_lists.eligible:
            return False
        least_s = self._service_rate.least_wait_s(self._wait_lists.ahead_at_least(ticket), now)
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
            retry_after_s=self._wait_lists.retry_after_s(urgency, ahead, now),
        )

    # -- eviction -------------------------------------------------------------------------------

    def relieve(self, newcomer: Ticket, now: float) -> bool:
        """Evict one waiting request to free a connection for a new request.

        The rules of eviction are those of a full queue. The ticket `newcomer` is not added to the
        queue; only its flow is used. Returns False if no waiting request may be evicted for the new
        request.
        """
        depth = self.depth
        newcomer.urgency = max(range(CLASSES), key=depth.__getitem__)
        victim = self._victim(newcomer, Reason.QUEUE_FULL, depth[newcomer.urgency])
        if victim is None:
            return False
        self.evict(victim, now, is_final=True)
        return True

    def set_aside(self, newcomer: Ticket) -> Ticket | None:
        """Return the next waiting ticket to evict to free memory for a new request; `None`: no more
        may be evicted.

        The ticket is treated as evicted until `put_back`, so that the next call returns another
        one. Call `put_back` for all returned tickets, the last one first, before any other call.
        Then call `evict` for those that must be evicted.
        """
        victim = self._victim(newcomer, Reason.QUEUE_BYTES_FULL, 0)
        if victim is not None:
            self._wait_lists.holders.set_aside(victim)
        return victim

    def put_back(self, ticket: Ticket) -> None:
        """Revert `set_aside` for a ticket, which then waits as before."""
        self._wait_lists.holders.put_back(ticket)

    def evict(self, ticket: Ticket, now: float, *, is_final: bool = False) -> None:
        """End a waiting ticket with 429 `queue_evicted`, because a new request needs its space.

        `is_final`: the new request needs its connection or memory, so it goes to no fallback.
        """
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
            is_final=is_final,
        )
        self.evicted.append(Expired(ticket, error))

    def _victim(self, newcomer: Ticket, reason: Reason, depth: int) -> Ticket | None:
        holders = self._wait_lists.holders
        member = holders.join(newcomer)
        victim = holders.victim(newcomer, reason, depth)
        holders.tidy(member)
        return victim
