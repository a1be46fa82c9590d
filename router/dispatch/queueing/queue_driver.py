"""Drives the admission queue, in which requests wait until a replica has capacity for them.

The queue (`router/admission`) is pure. The driver connects it with requests, leases, the fleet and
time. The proxy and the simulator both run this driver; their requests are `Request`s, their
time is a `Scheduler`. A request that has to wait gets a `Ticket`, and keeps the ticket until the
request has ended. The ticket covers the request's first attempt and its retries. Hedges and
attempts for the rest of a broken stream bypass the queue and count only as load.

Usually no request waits. Then a request gets no ticket: the routing policy chooses a replica, and
the driver checks that this replica accepts one more request (`_fast_path`). The queue is used only
if the replica does not accept the request, or if an extra counts every request
(`router/admission/extra.py`).

Each change of a replica's state is recorded (`changed`). If requests wait, the queue is updated at
the end of the same turn of the event loop (`_settle`). So no call of the queue happens inside
another one. All requests that one call grants take their leases before other code runs. If no
request waits, the queue is updated when the next request comes (`_catch_up`).

An API key may limit the number of its requests at replicas. The driver counts requests that were
sent without a ticket against this limit (`_count`, `_uncount`); the queue counts requests with
tickets. One timer is used for the aging and the timeouts of waiting requests. The timer is off
while no request waits.

Must never: choose among requests (the queue does), keep the ticket of a request that has ended, or
depend on whether the time is real or simulated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

from policies.allowed import lane_of, read_lane
from policies.queueing.contract import OrderPolicy
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import INFINITY, NEW, SENT, Ticket
from router.admission.pools import Pools
from router.admission.queue import Queue
from router.admission.runs import CANCELLED, DONE, REFUSED
from router.admission.wait_forecast import WaitForecast
from router.config.model import Config
from router.core.errors import Reason, RouterError
from router.core.replica_load import ReplicaLoad
from router.core.scheduling import Scheduler
from router.core.ttft_estimate import TtftEstimates
from router.core.urgency import BATCH
from router.dispatch.chooser import Chooser
from router.dispatch.driver.arrival_estimate import if_it_waits
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.request import Request
from router.dispatch.queueing.evictions import Evictions, answer_expired
from router.dispatch.queueing.places import Places, pinned
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.observe.events import log_event
from router.observe.metrics import Metrics

LEAST_S: Final = 0.001  # The delay of a tick that is due at once, in seconds.
# These reasons mean that the replica was overloaded; it did not fail.
_NO_ROOM: Final = frozenset({Reason.REPLICA_BUSY, Reason.TTFT_TIMEOUT})

_Begun = list[tuple[Request, Attempt | Exception]]


class QueueDriver:
    """Drives the queues of one router."""

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        chooser: Chooser,
        metrics: Metrics,
        scheduler: Scheduler,
        estimates: TtftEstimates,
    ) -> None:
        """Raises PolicyConfigError."""
        self._fleet = fleet
        self._chooser = chooser
        self._metrics = metrics
        self._scheduler = scheduler
        self._places = places = Places(fleet, chooser)
        self.pools = Pools(config, places, estimates)
        # The changes of the fleet that the queues do not know yet: replicas whose state changed,
        # and whether the set of fit replicas, or the limits of replicas, changed.
        self._changed: dict[Replica, None] = {}
        self._is_rebuilt = False
        self._is_settling = False  # Whether a call of `_settle` was requested and has not happened.
        self._served: Mapping[ReplicaLoad, Iterable[str] | None] = {}
        # The function that polls a replica at once.
        self.poll_early: Callable[[Replica], None] | None = None
        self._evictions = Evictions(self.pools, scheduler)
        self._alarm = scheduler.alarm(self._tick)
        self._limited_at = 0  # The version of the context lengths that limit waiting requests.
        self._due = INFINITY  # The time for which the timer is set.
        self._settling: Final = self._settle  # The bound method is created once, not at every use.
        fleet.hooks.room = self.changed
        fleet.hooks.taken = self._taken
        self.changed(None)

    def adopt(self, config: Config, orders: Sequence[OrderPolicy] | None = None) -> None:
        """Apply a reload. Waiting requests keep their arrival times. See `Pools.adopt`."""
        before = self.pools.queues[0].config
        if (config.queue, config.classes) != (before.queue, before.classes):
            self.pools.adopt(config, orders)
            self._scheduler.soon(self._tick)

    @property
    def is_fair(self) -> bool:
        """Whether the order policy shares capacity between flows.

        If the policy does, further requests of a user need no lower priority.
        """
        return self.pools.queues[0].is_fair

    # -- arrivals -----------------------------------------------------------------------------

    def enter(self, x: Request, owner: Replica | None, now: float) -> Replica | None:
        """Return the replica for a request; `None` if the request waits.

        `owner`: the only replica that can answer the request. Raises RouterError if the request may
        not wait or if no replica will ever serve it.
        """
        model: str | None = x.view.model
        if owner is None:
            replica = self._fast_path(x, now)
            if replica is None:
                return self._offer(x, model or "", now)
            if not x.order:
                x.order = self.pools.next_order()
            return replica
        return self._offer(x, next(iter(owner.models or ()), model) or "", now, owner)

    def _fast_path(self, x: Request, now: float) -> Replica | None:
        """Return the replica for a request that needs no ticket; `None`: it needs one.

        A request may bypass the queue if no request waits, and the chosen replica accepts it.
        Raises RouterError if no replica serves the model and the request may not wait for one.
        """
        fleet, view, rank, limit = self._fleet, x.view, x.urgency.rank, x.concurrency
        model, allowed = view.model, view.allowed
        fleet.eligibility.check(model, allowed)
        queue = self.pools.of(model or "")
        fit = fleet.serving.of(model, allowed)
        if fit and queue.is_passable and (limit is None or limit.may_pass(rank == BATCH)):
            replica = self._chooser.choose(view, fit, now)
            if queue.passes(replica, rank, now):
                return replica
        if not fit and now >= fleet.absent_since.of(model, allowed) + queue.absent_s(rank):
            # This call raises RouterError with the reason why no replica is fit.
            fleet.eligibility.replicas(model, allowed)
        return None

    def _offer(
        self,
        x: Request,
        model: str,
        now: float,
        owner: Replica | None = None,
        excluded: tuple[Replica, ...] = (),
    ) -> Replica | None:
        """`owner`: the only replica that can answer the request; `None`: any replica."""
        self._catch_up(now)
        lane = lane_of(model if owner is None else pinned(owner), x.view.allowed)
        ticket = x.make_ticket(model, lane)
        ticket.order = x.order  # A retry comes before requests that arrived later.
        ticket.excluded = excluded
        forecast: WaitForecast | None = None
        if x.state.last is None:  # The wait is predicted at the arrival, not for a retry.
            forecast = if_it_waits(x.view, self._chooser, self._fleet, now)
            ticket.forecast = forecast
        try:
            found = self.pools.offer(ticket, now)
        except RouterError:
            raise
        # After an unexpected exception the ticket may be in the queue. The end of the request
        # removes it.
        except Exception:
            x.ticket = ticket
            raise
        finally:
            if forecast is not None:
                x.estimate = forecast.estimate
            self._evictions.take(ticket.queue)
        x.ticket = ticket
        if not found:
            x.deadlines.queued(now)
            self._arm()
            return None
        return self._chooser.choose(x.view, cast(Sequence[Replica], found), now)

    def refused_late(self, x: Request) -> None:
        """Count a request that is refused at once, because its first token would come too late."""
        ticket = x.ticket
        queue: Queue = self.pools.of(x.view.model or "") if ticket is None else ticket.queue
        queue.refused_late(x.urgency.rank, was_passed=ticket is None)

    def relieve(self, flow: FlowIdentity, body_bytes: int) -> bool:
        """Evict waiting requests of flows larger than `flow`; see `Evictions.relieve`."""
        return self._evictions.relieve(flow, body_bytes, self._scheduler.now())

    # -- events of a request --------------------------------------------------------------------

    def sent(self, x: Request, replica: Replica, now: float, *, is_extra: bool) -> None:
        """Note that an attempt begins at a replica. The attempt already has its lease.

        `is_extra`: the attempt is a hedge or resumes a stream; the queue ticket does not cover it.
        """
        ticket = x.ticket
        if ticket is None or is_extra:
            if x.concurrency is not None and ticket is None and not x.is_counted:
                _count(x, now)
            self.changed(replica)
            return
        if ticket.state == NEW:
            queue: Queue = ticket.queue
            queue.sent(ticket, replica, now)
        elif ticket.state == SENT:
            run = ticket.run
            if run is not None and (run.is_away or run.place is not replica):
                self.pools.moved(ticket, replica, now)
        if not x.may_move():
            self.pools.stays(ticket)  # In the queue to which the ticket may just have moved.

    def pauses(self, x: Request) -> None:
        """Note that a request has failed at a replica and pauses before its retry."""
        ticket = x.ticket
        if ticket is not None and ticket.state == SENT:
            queue: Queue = ticket.queue
            queue.runs.failed(ticket)

    def over(
        self,
        x: Request,
        reason: Reason,
        replica: Replica | None,
        tokens: int,
        output: int,
        now: float,
    ) -> None:
        """Report to the queue that a request has ended, or that it goes to a fallback.

        Its leases were released before.

        The request's share of its tenant's limits is released later: the dispatcher releases
        it and calls `wake`.

        `replica`: the replica that answered. `tokens`, `output`: the request's true cost, in
        uncached prompt tokens and in output tokens; see `Runs.settle`.
        """
        if x.concurrency is not None:
            _uncount(x, now)
        ticket = x.ticket
        end = CANCELLED
        if reason is Reason.OK:
            end = DONE
        elif reason in _NO_ROOM:
            end = REFUSED
        if ticket is None:
            last = x.state.last
            if last is not None:
                flow = x.flow
                view = x.view
                of_choice = output // view.choices  # Below 0 if `output` is.
                at = last.at if replica is None else replica
                self.pools.passed(at, flow, view.prompt_tokens, of_choice, last.began, now, end)
            return
        x.ticket = None
        ticket.request = None
        queue: Queue = ticket.queue
        if ticket.state != SENT:
            queue.leave(ticket)
            self._arm()
            return
        queue.runs.settle(ticket, tokens, output, now, end)

    # -- events of the fleet ------------------------------------------------------------------

    def changed(self, replica: Replica | None) -> None:
        """Note that a replica's state has changed.

        `replica`: `None` if the set of fit replicas, or the limits of replicas, changed.
        """
        if replica is None:
            self._is_rebuilt = True
        else:
            self._changed[replica] = None
            if not self.pools.waiting:
                return  # The next request updates the queue first.
        self._settle_soon()

    def _taken(self, replica: Replica) -> None:
        """Note that other routers have sent more requests to a replica.

        Nothing can be granted there. While requests wait, each tick looks at the replica.
        """
        if not self.pools.waiting:
            self._changed[replica] = None

    def _settle_soon(self) -> None:
        if not self._is_settling:
            self._is_settling = True
            self._scheduler.soon(self._settling)

    def _catch_up(self, now: float) -> None:
        """Update the queue before a new request, if no request waits."""
        if self._changed and not self.pools.waiting:
            for replica in self._changed:
                self.pools.freed(replica, now)  # No request waits, so nothing is granted.
            self._changed.clear()

    def _settle(self) -> None:
        """Report the changes of this turn of the event loop to the queue."""
        now = self._scheduler.now()
        begun: _Begun = []
        try:
            self._is_settling = False
            changed, self._changed = self._changed, {}
            if self._is_rebuilt:
                changed = self._rebuild(now)
            if self._limited_at != self._fleet.context_levels.version:
                self._limit_again()
            if self.pools.is_woken:
                # Requests that their keys' limits no longer block are sent before the changed
                # replicas are reported. Otherwise all of these requests would go to the replica
                # where a request has just ended.
                self._send_woken(begun, now)
            for replica in changed:
                self._begin(self.pools.freed(replica, now), begun, now)
        finally:  # Granted requests are sent even after an exception.
            _go(begun)
            self._arm()

    def _rebuild(self, now: float) -> dict[Replica, None]:
        """Update the queues' view of the fleet. Returns all replicas."""
        self._is_rebuilt = False
        self._places.changed()
        served = self._places.served()
        if served != self._served:
            self._served = served
            self.pools.regroup(served, now)
        self.pools.rebuilt(now)
        return dict.fromkeys(self._fleet.replicas.values())

    def _limit_again(self) -> None:
        """Apply changed context lengths of the fleet to all waiting requests."""
        self._limited_at = self._fleet.context_levels.version
        for queue in self.pools.queues:
            for ticket in queue.wait_lists.tickets():
                x = cast(Request, ticket.request)
                if x.limit_context():
                    self.limits_changed(x)

    def wake(self) -> None:
        """Send requests that are no longer blocked by their keys' limits.

        The requests are sent at the end of this turn of the event loop.
        """
        if self.pools.is_woken:
            self._settle_soon()

    def _send_woken(self, begun: _Begun, now: float) -> None:
        """Send requests that are no longer blocked by a key's limit.

        The routing policy chooses the replicas of these requests, as for new requests, because many
        replicas may have capacity.
        """
        while True:
            found = self.pools.woken(now)
            if found is None:
                break
            ticket, places = found
            x = cast(Request, ticket.request)
            replica = self._chooser.choose(x.view, cast(Sequence[Replica], places), now)
            queue: Queue = ticket.queue
            queue.grant(ticket, replica, now)
            self._begin([ticket], begun, now)

    # -- decisions of the queue ---------------------------------------------------------------

    def _begin(self, granted: list[Ticket], begun: _Begun, now: float) -> None:
        """Take the leases of all granted requests, before any other code runs."""
        for ticket in granted:
            x = cast(Request, ticket.request)
            prepared: Attempt | Exception
            try:
                self._metrics.waited(x.urgency.name, now - x.deadlines.waits_since)
                x.deadlines.granted(now)
                prepared = x.sender.prepare(cast(Replica, ticket.place), now)
            except Exception as err:  # `_go` ends this request after all leases are taken.
                prepared = err
            begun.append((x, prepared))

    def _arm(self) -> None:
        """Set the timer for the next tick of the queue."""
        failures = self.pools.failures
        if failures.texts:
            for text in failures.take():
                log_event(logging.ERROR, "the order policy of the queue failed", error=text)
        self.wake()
        due = self.pools.next_at
        if due < self._due:  # If the timer fires earlier, the tick sets it again.
            now = self._scheduler.now()
            due = due if due > now else now + LEAST_S
            if due < self._due:  # The minimum delay must not postpone a timer that is already set.
                self._due = due
                self._alarm.set(due)
        elif due == INFINITY:
            self._due = INFINITY
            self._alarm.clear()

    def _tick(self) -> None:
        self._due = INFINITY
        self._alarm.clear()
        now = self._scheduler.now()
        ticked = self.pools.tick(now)
        begun: _Begun = []
        self._begin(ticked.granted, begun, now)
        _go(begun)
        for expired in ticked.expired:
            answer_expired(expired)
        for victim in ticked.preempt:
            self.recall(victim, now)
        self._arm()
        poll_early = self.poll_early
        if poll_early is not None:
            for place in ticked.polls:
                poll_early(cast(Replica, place))
        if ticked.error is not None:
            raise ticked.error

    def open_among(self, x: Request, others: Sequence[Replica]) -> Sequence[Replica]:
        """Return the replicas of `others` that accept the request now."""
        ticket = x.ticket
        model = x.view.model or "" if ticket is None else ticket.model
        lane = lane_of(model, x.view.allowed) if ticket is None else ticket.lane
        rank = x.urgency.rank if ticket is None else ticket.urgency
        self._catch_up(self._scheduler.now())
        return cast(Sequence[Replica], self.pools.open_to(model, lane, rank, others))

    def retry(
        self, x: Request, others: Sequence[Replica], tried: Sequence[Replica]
    ) -> Replica | None:
        """Return the replica for a retry, which is one of `others`; `None` if the request waits.

        `tried`: the replicas where the request failed. A request that waits keeps its place in the
        order of arrival, and waits for a replica that it has not tried.

        Raises RouterError if the request may not wait.
        """
        now, ticket = self._scheduler.now(), x.ticket
        found = self.open_among(x, others)
        if found:
            return self._chooser.choose(x.view, found, now)
        if ticket is None:
            _uncount(x, now)
            # If no other replica serves the request, the replica tried last may get it again.
            self.changed(tried[-1])
            return self._offer(x, x.view.model or "", now, None, tuple(tried))
        ticket.excluded = tuple(tried)
        if not self.pools.requeue(ticket, now):
            # A ticket that has ended is never sent, so the request would wait forever.
            raise RouterError(Reason.INTERNAL, "the queue ticket ended before its request")
        x.deadlines.queued(now)
        self.changed(tried[-1])
        self._arm()
        return None

    def wait_again(self, x: Request, replica: Replica) -> bool:
        """Queue a request that could not connect to its replica, when no other replica is fit.

        The request waits as if the replica were known to be down. Returns False if the request has
        already waited for the time limit of its class.
        """
        now = self._scheduler.now()
        ticket = x.ticket
        model = x.view.model or "" if ticket is None else ticket.model
        if x.unreached_since < 0.0:
            x.unreached_since = now
        rank = x.urgency.rank if ticket is None else ticket.urgency
        if now >= x.unreached_since + self.pools.of(model).absent_s(rank):
            return False
        self.pools.unreached(replica, now)
        if ticket is None:
            _uncount(x, now)
            try:
                other = self._offer(x, model, now, x.pinned)
            except RouterError:
                return False
            if other is not None:
                x.sender.begin(other, now)
            return True
        ticket.excluded = ()
        if not self.pools.requeue(ticket, now):
            return False
        x.deadlines.queued(now)
        self.changed(replica)
        return True

    def limits_changed(self, x: Request) -> None:
        """Apply the changed `RequestView.allowed` of a request to its ticket.

        A waiting request waits for its new replicas. It keeps its place in the order of arrival.
        """
        ticket = x.ticket
        if ticket is not None:
            lane = lane_of(read_lane(ticket.lane)[0], x.view.allowed)
            queue: Queue = ticket.queue
            queue.set_lane(ticket, lane, self._scheduler.now())
            self.changed(None)

    def expected_output(self, x: Request) -> int:
        """Return the expected output tokens of all choices of a request."""
        view = x.view
        if view.output_tokens >= 0:
            return view.output_tokens
        return view.choices * self.pools.of(view.model or "").runs.expected_output(x.flow)

    def withdraw(
        self,
        x: Request,
        replica: Replica,
        others: Sequence[Replica],
        tried: Sequence[Replica],
        now: float,
    ) -> bool:
        """Take a request without content away from `replica`, which will go away.

        A request with a ticket is queued again, in its old position. A request without a ticket is
        sent to one of `others`. If none of them accepts it now, it gets a ticket. `others`: the
        replicas that are not at their limits; may be empty. `tried`: the replicas where the request
        failed. Returns False if the request stays, because the queue refuses it.
        """
        ticket = x.ticket
        if ticket is not None:
            if ticket.state != SENT or ticket.run is None:
                return False
            x.sender.recall(now)
            if self.pools.requeue(ticket, now):
                x.deadlines.queued(now)
            self.changed(replica)
            self._arm()
            return True
        found = self.open_among(x, others)
        if not found:
            return self._queue_instead(x, tried, now)
        x.sender.recall(now)
        _uncount(x, now)
        x.sender.begin(self._chooser.choose(x.view, found, now), now)
        return True

    def _queue_instead(self, x: Request, tried: Sequence[Replica], now: float) -> bool:
        """Give a running request without a ticket to the queue, and then end its attempts.

        Returns False, and the attempts go on, if the queue refuses the request.
        """
        was_counted = x.is_counted
        _uncount(x, now)  # The queue counts a request with a ticket.
        try:
            replica = self._offer(x, x.view.model or "", now, None, tuple(tried))
        except RouterError:
            if was_counted:
                _count(x, now)
            return False
        x.sender.recall(now)
        if replica is not None:
            x.sender.begin(replica, now)
        return True

    def recall(self, ticket: Ticket, now: float) -> None:
        """Preempt a request for a more urgent one: stop its attempts and queue it again."""
        request, run = ticket.request, ticket.run
        if request is None or ticket.state != SENT or run is None or run.has_shown:
            return  # The request has ended or shown content in this turn of the event loop.
        x, place = cast(Request, request), cast(Replica, run.place)
        try:
            x.sender.recall(now)
            if self.pools.requeue(ticket, now, is_preempted=True):
                x.deadlines.queued(now)
                # The replica may have capacity for both the preempted and the more urgent request.
                self.changed(place)
        except Exception as err:
            x.crashed(err)


def _go(begun: _Begun) -> None:
    for x, prepared in begun:
        if isinstance(prepared, Exception):
            x.crashed(prepared)
            continue
        try:
            x.sender.go(prepared)
        except Exception as err:
            x.crashed(err)


def _count(x: Request, now: float) -> None:
    """Count a request that has no ticket against the limit of its API key."""
    assert x.concurrency is not None
    x.is_counted = True
    x.concurrency.take(x.urgency.rank == BATCH, now)


def _uncount(x: Request, now: float) -> None:
    """Stop counting a request that has no ticket against the limit of its API key."""
    if x.is_counted:
        x.is_counted = False
        assert x.concurrency is not None
        x.concurrency.give(x.urgency.rank == BATCH, now)
