"""Drives the admission queue: lets requests wait, and sends them when there is room.

The queue (`router/admission`) is pure; here it meets requests, leases, the fleet and time. The
proxy and the simulator both run this driver; their requests are `QueuedRequest`s, their time is a
`Scheduler`. A request that waits has a `Ticket` from then on until it is over. Its first attempt,
and each that follows a failed one, is the ticket's; hedges and continuations pass the queue by and
only count as load.

While no request waits, which is the usual state, a request has no ticket: the routing policy
chooses, and its choice is asked whether it takes one more (`fast_path`). The queue is asked only
where that says no, and where every request has to be counted (reservations, preemption).

Whatever changes a replica's facts is noted (`changed`). Where requests wait, the queue is told of
it at the end of the same turn: so no call of the queue happens inside the consequences of another
one, and the leases of all that one call granted are taken before anything else happens. Where none
waits, the queue is told when the next request comes.

A request that was sent without a ticket is counted here in its key's limit (`sent`, `_uncount`);
the queue counts the others. One timer serves aging and timeouts. It is off while nothing waits.

Must never: choose among requests (the queue does), keep a ticket of a request that is over, or know
whether its time is real.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, cast

from policies.facts import RequestView
from policies.queueing.contract import OrderPolicy
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import INFINITY, NEW, SENT, Ticket
from router.admission.pools import Pools
from router.admission.queue import Queue
from router.admission.timers import Expired
from router.admission.wait_lists import GIVE_WAY
from router.config.model import Queue as Config
from router.core.errors import Reason, RouterError
from router.core.scheduling import Scheduler
from router.core.urgency import BATCH
from router.dispatch.chooser import Chooser
from router.dispatch.fast_path import fast_path
from router.dispatch.pending_changes import PendingChanges
from router.dispatch.places import Places, pinned
from router.dispatch.queue_outcomes import queue_outcome
from router.dispatch.queued_request import QueuedRequest
from router.fleet.replica import Replica
from router.fleet.table import Fleet
from router.observe.events import log_event
from router.observe.metrics import Metrics

LEAST_S: Final = 0.001  # timers are no finer
_AGAIN_S: Final = 1.0  # until the next tick after one that a defect broke off

_Begun = list[tuple[QueuedRequest, object]]


class QueueDriver:
    """The queues of one router, driven."""

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        chooser: Chooser,
        metrics: Metrics,
        scheduler: Scheduler,
    ) -> None:
        """Raises PolicyConfigError."""
        self._fleet = fleet
        self._chooser = chooser
        self._metrics = metrics
        self._scheduler = scheduler
        places = Places(fleet)
        self.pools = Pools(config, places)
        self._changes = PendingChanges(fleet, places, self.pools)
        self.hurry: Callable[[Replica], None] | None = None  # polls a replica at once
        self._evicted: list[Expired] = []  # they gave way, and are answered in a moment ...
        self._freeing = 0  # ... which frees so many bytes of bodies
        self._alarm = scheduler.alarm(self._tick)
        self._due = INFINITY  # when it rings
        self._settling: Final = self._settle  # made once, not at every turn
        fleet.on_room = self.changed
        self.changed(None)

    def adopt(self, config: Config, orders: Sequence[OrderPolicy] | None = None) -> None:
        """A reload: requests that wait keep their place in time. See `Pools.adopt`."""
        if config != self.pools.queues[0].config:
            self.pools.adopt(config, orders)
            self._scheduler.soon(self._tick)

    @property
    def is_fair(self) -> bool:
        """Whether the order shares by flow: a user's further requests need not step back then."""
        return self.pools.queues[0].is_fair

    # -- a request comes ----------------------------------------------------------------------

    def enter(self, x: QueuedRequest, owner: Replica | None) -> Replica | None:
        """Where a request goes now; None: it waits. `owner`: nobody else can answer it.

        Raises RouterError: it may not even wait, or no replica will ever serve it.
        """
        model: str | None = x.view.model
        if owner is None:
            may_pass = x.concurrency is None or x.concurrency.may_pass(x.urgency.rank == BATCH)
            rank, now = x.urgency.rank, x.arrived
            fleet, pools, chooser = self._fleet, self.pools, self._chooser
            replica = fast_path(fleet, pools, chooser, x.view, rank, now, may_pass)
            if replica is None:
                return self._offer(x, model or "", None)
            if not x.order:
                x.order = pools.next_order()
            return replica
        return self._offer(x, next(iter(owner.models or ()), model) or "", pinned(owner))

    def _offer(
        self,
        x: QueuedRequest,
        model: str,
        lane: str | None,
        excluded: tuple[Replica, ...] = (),
    ) -> Replica | None:
        now = self._scheduler.now()
        self._changes.catch_up(now)
        ticket = x.make_ticket(model, lane)
        ticket.order = x.order  # a retry comes before those that arrived after its request
        ticket.excluded = excluded
        try:
            found = self.pools.offer(ticket, now)
        except RouterError:
            raise
        except Exception:  # a defect: it may stand in the queue, and its end takes it out
            x.ticket = ticket
            raise
        finally:
            self._take_evicted(ticket.queue)
        x.ticket = ticket
        if not found:
            x.begin_wait(now)
            self._arm()
            return None
        return self._chooser.choose(x.view, cast(Sequence[Replica], found))

    def relieve(self, flow: FlowIdentity, body_bytes: int) -> bool:
        """Let waiting requests of larger flows give way, because connections are short, or so many
        bytes of memory. Whether they free as much as is needed, in a moment."""
        now = self._scheduler.now()
        newcomer = Ticket(None, RequestView(body_bytes=body_bytes), flow)
        queues = self.pools.queues
        if not body_bytes:
            queue = max(queues, key=_waiting)
            is_freed = queue.relieve(newcomer, now)
            self._take_evicted(queue)
            return is_freed
        missing = body_bytes - self._freeing
        victims: list[tuple[Queue, Ticket]] = []
        while missing > 0 and len(victims) < GIVE_WAY:
            queue = max(queues, key=_body_bytes)
            victim = queue.set_aside(newcomer)
            if victim is None:
                break
            victims.append((queue, victim))
            missing -= victim.view.body_bytes
        for queue, victim in reversed(victims):
            queue.put_back(victim)
        if missing > 0:
            return False
        for queue, victim in victims:
            queue.evict(victim, now)
            self._take_evicted(queue)
        return True

    def _take_evicted(self, queue: Queue) -> None:
        """Those that gave way are answered at the end of this turn of the event loop."""
        if queue.evicted:
            if not self._evicted:
                self._scheduler.soon(self._answer_evicted)
            for gone in queue.evicted:
                self._freeing += gone.ticket.view.body_bytes
                self._evicted.append(gone)
            queue.evicted = []

    def _answer_evicted(self) -> None:
        evicted, self._evicted = self._evicted, []
        self._freeing = 0
        for gone in evicted:
            _answer(gone)

    def commits(self, ticket: Ticket) -> bool:
        """Whether the client of a request may be sent an early 200: see the queue."""
        return self.pools.commits(ticket)

    # -- what a request tells -------------------------------------------------------------------

    def sent(self, x: QueuedRequest, replica: Replica, now: float, *, is_extra: bool) -> None:
        """An attempt begins; its lease is taken. `is_extra`: it is not its ticket's."""
        ticket = x.ticket
        if ticket is None or is_extra:
            if x.concurrency is not None and ticket is None and not x.is_counted:
                x.is_counted = True
                x.concurrency.take(x.urgency.rank == BATCH, now)
            self.changed(replica)
            return
        if ticket.state == NEW:
            self.pools.sent(ticket, replica, now)
        elif ticket.state == SENT:
            run = ticket.run
            if run is not None and (run.is_away or run.place is not replica):
                self.pools.moved(ticket, replica, now)
        if not x.may_move():
            self.pools.stays(ticket)

    def pauses(self, x: QueuedRequest) -> None:
        """The request has failed at a replica, and pauses before it is sent again."""
        ticket = x.ticket
        if ticket is not None and ticket.state == SENT:
            self.pools.failed(ticket)

    def _uncount(self, x: QueuedRequest, now: float) -> None:
        """A request without a ticket is at no replica any more."""
        if x.is_counted:
            x.is_counted = False
            assert x.concurrency is not None
            x.concurrency.give(x.urgency.rank == BATCH, now)

    def over(
        self,
        x: QueuedRequest,
        reason: Reason,
        replica: Replica | None,
        tokens: int,
        output: int,
        now: float,
    ) -> None:
        """The request has ended; its leases are released. If its key has limits, whoever gives
        them back (`Dispatcher.finished`) calls `wake` next.

        `replica`: the one that answered. `tokens`, `output`: what it cost there, see
        `Queue.settle`.
        """
        if x.concurrency is not None:
            self._uncount(x, now)
        ticket = x.ticket
        end = queue_outcome(reason)
        if ticket is None:
            last = x.last_attempt()
            if last is not None:
                place, began = last
                flow = x.flow_identity()
                prompt = x.view.prompt_tokens
                self.pools.passed(
                    place if replica is None else replica, flow, prompt, output, began, now, end
                )
            return
        x.ticket = None
        ticket.request = None
        if ticket.state != SENT:
            self.pools.leave(ticket)
            self._arm()
            return
        self.pools.settle(ticket, tokens, output, now, end)

    # -- what the fleet tells -----------------------------------------------------------------

    def changed(self, replica: Replica | None) -> None:
        """A replica's facts are others now; None: who is fit, or what they may have, is."""
        if self._changes.note(replica):
            self._scheduler.soon(self._settling)

    def _settle(self) -> None:
        """What has changed in this turn of the event loop is told to the queue."""
        now = self._scheduler.now()
        begun: _Begun = []
        try:
            changed = self._changes.read(now)
            if self.pools.is_woken:
                self._send_woken(begun, now)  # first, else all of them go where one has just ended
            for replica in changed:
                self._begin(self.pools.freed(replica, now), begun, now)
        finally:  # what was granted is sent, whatever a defect has stopped
            self._go(begun)
            self._arm()

    def wake(self) -> None:
        """Requests may be sent that their keys' limits blocked: at the end of this turn."""
        if self.pools.is_woken and self._changes.await_reading():
            self._scheduler.soon(self._settling)

    def _send_woken(self, begun: _Begun, now: float) -> None:
        """Those that a key's limit blocked go where the routing policy wants them, as newcomers
        do: there may be room at many replicas."""
        while True:
            found = self.pools.woken(now)
            if found is None:
                break
            ticket, places = found
            x = cast(QueuedRequest, ticket.request)
            replica = self._chooser.choose(x.view, cast(Sequence[Replica], places))
            self.pools.grant(ticket, replica, now)
            self._begin([ticket], begun, now)

    # -- what the queue tells -----------------------------------------------------------------

    def _begin(self, granted: list[Ticket], begun: _Begun, now: float) -> None:
        """Take the leases of all of them; nothing else happens meanwhile."""
        for ticket in granted:
            x = cast(QueuedRequest, ticket.request)
            prepared: object
            try:
                x.end_wait(now)
                self._metrics.waited(x.urgency.name, now - ticket.arrival)
                prepared = x.prepare(cast(Replica, ticket.place), now)
            except Exception as err:  # ends this request, when the others have their leases
                prepared = err
            begun.append((x, prepared))

    def _go(self, begun: _Begun) -> None:
        for x, prepared in begun:
            if isinstance(prepared, Exception):
                x.crashed(prepared)
                continue
            try:
                x.go(prepared)
            except Exception as err:
                x.crashed(err)

    def _arm(self) -> None:
        """Set the timer to when time alone changes something."""
        if self.pools.failures.texts:
            self._tell_failures()
        self.wake()
        due = self.pools.next_at
        if due < self._due:  # else it rings early enough, and sets itself anew
            due = max(self._scheduler.now() + LEAST_S, due)
            if due < self._due:  # what is due already must not put it off
                self._due = due
                self._alarm.set(due)
        elif due == INFINITY:
            self._due = INFINITY
            self._alarm.clear()

    def _tell_failures(self) -> None:
        for text in self.pools.failures.take():
            log_event(logging.ERROR, "the order policy of the queue failed", error=text)

    def _tick(self) -> None:
        self._due = INFINITY
        self._alarm.clear()
        now = self._scheduler.now()
        try:
            ticked = self.pools.tick(now)
        except Exception:  # a defect must not stop the queue's time
            self._due = now + _AGAIN_S
            self._alarm.set(self._due)
            raise
        begun: _Begun = []
        self._begin(ticked.granted, begun, now)
        self._go(begun)
        for expired in ticked.expired:
            _answer(expired)
        for victim in ticked.preempt:
            self.recall(victim, now)
        self._arm()
        hurry = self.hurry
        if hurry is not None:
            for place in ticked.polls:
                hurry(cast(Replica, place))

    def retry(
        self, x: QueuedRequest, others: Sequence[Replica], tried: Sequence[Replica]
    ) -> Replica | None:
        """A request has failed at the replicas `tried`. Where it goes now, which is one of
        `others`; None: it waits, at its old place, for one that it has not tried.

        Raises RouterError: it may not wait.
        """
        now = self._scheduler.now()
        ticket = x.ticket
        model = x.view.model or "" if ticket is None else ticket.model
        lane = model if ticket is None else ticket.lane
        rank = x.urgency.rank if ticket is None else ticket.urgency
        self._changes.catch_up(now)
        found = self.pools.open_to(model, lane, rank, others)
        if found:
            return self._chooser.choose(x.view, cast(Sequence[Replica], found))
        if ticket is None:
            self._uncount(x, now)
            self.changed(tried[-1])  # if no other replica is in the lane, it may take the request
            return self._offer(x, model, None, tuple(tried))
        ticket.excluded = tuple(tried)
        if not self.pools.requeue(ticket, now):
            # Nothing would send a ticket that has ended, so its request would wait for ever.
            raise RouterError(Reason.INTERNAL, "the ticket of a request has ended before it")
        x.begin_wait(now)
        self.changed(tried[-1])
        self._arm()
        return None

    def wait_again(self, x: QueuedRequest, replica: Replica) -> bool:
        """A request did not reach its replica, and no other one is fit: it waits, as it would if
        the replica was known to be down. False: it has waited so for as long as its class may."""
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
            self._uncount(x, now)
            try:
                other = self._offer(x, model, None if x.pinned is None else pinned(x.pinned))
            except RouterError:
                return False
            if other is not None:
                x.go(x.prepare(other, now))
            return True
        ticket.excluded = ()
        if not self.pools.requeue(ticket, now):
            return False
        x.begin_wait(now)
        self.changed(replica)
        return True

    def recall(self, ticket: Ticket, now: float) -> None:
        """It gives way to somebody more urgent: its engine stops, and it waits again."""
        request, run = ticket.request, ticket.run
        if request is None or ticket.state != SENT or run is None or run.has_shown:
            return  # it has ended, or shown something, in this very turn
        x, place = cast(QueuedRequest, request), cast(Replica, run.place)
        try:
            x.recall(now)
            if self.pools.requeue(ticket, now):
                x.begin_wait(now)
                self.changed(place)  # there may be room for both
        except Exception as err:
            x.crashed(err)


def _answer(expired: Expired) -> None:
    """Tell its client why it was not sent, if it is still there."""
    request = expired.ticket.request
    if request is not None:
        x = cast(QueuedRequest, request)
        try:
            x.answer(expired.error)
        except Exception as err:
            x.crashed(err)


def _waiting(queue: Queue) -> int:
    return queue.waiting


def _body_bytes(queue: Queue) -> int:
    return queue.body_bytes
