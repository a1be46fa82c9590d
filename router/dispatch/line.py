"""Drives the admission queue: who waits for a replica, and what happens when there is room.

The queue (router/admission) is pure; here it meets requests, leases, the fleet and the clock. An
exchange that waits has a `Ticket` from then on until it is over. Its first attempt, and each that
follows a failed one, is the ticket's; hedges and continuations pass the queue by and only count as
load.

While nobody waits, which is the usual state, a request has no ticket: the routing policy chooses,
and what it has chosen is asked whether it takes one more. Only where that says no, and where every
request has to be counted (reservations, preemption), the queue is asked.

Whatever changes a replica's facts is noted (`changed`). Where somebody waits, the queue is told of
it at the end of the same turn of the event loop: so no call of the queue happens inside another
one's consequences, and the leases of all that one call granted are taken before anything else
happens. Where nobody does, it is told when somebody comes.

A request that passed without a ticket is counted here in its key's limit (`_uncount`), any other
one by the queue.

There is one timer, for what time alone changes, and none while nobody waits.

Must never: choose among requests (the queue does), or keep a ticket of a request that is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from policies.queueing.ticket import NEW, SENT, Ticket
from router.admission.clockwork import Expired
from router.admission.pools import Pools
from router.admission.queue import Queue
from router.admission.room import GIVE_WAY
from router.config.model import Queue as Config
from router.core.errors import Reason, RouterError
from router.core.urgency import BATCH
from router.dispatch.at_once import at_once
from router.dispatch.chooser import Chooser
from router.dispatch.ends import end_of
from router.dispatch.news import News
from router.dispatch.places import Places, pinned
from router.dispatch.usage import UNKNOWN
from router.fleet.knowledge import Knowledge
from router.fleet.replica import Replica
from router.fleet.table import Fleet
from router.intake.flow import Flow
from router.observe.metrics import Metrics

if TYPE_CHECKING:
    from router.dispatch.exchange import Exchange
    from router.dispatch.leg import Leg

LEAST_S: Final = 0.001  # timers are no finer
_CHOICES: Final = 1024  # of one request, as far as they are believed
_OUTPUT: Final = 256  # tokens of each of several choices, where the client sets no limit


class Line:
    """The queues of one router, driven."""

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        knowledge: Knowledge,
        chooser: Chooser,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Raises PolicyConfigError."""
        self._fleet = fleet
        self._knowledge = knowledge
        self._chooser = chooser
        self._metrics = metrics
        self._loop = loop
        places = Places(fleet)
        self.pools = Pools(config, places)
        self._news = News(fleet, places, self.pools)
        self.hurry: Callable[[Replica], None] | None = None  # polls a replica at once
        self._evicted: list[Expired] = []  # they gave way, and are answered in a moment ...
        self._freeing = 0  # ... which frees so many bytes of bodies
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf  # when it rings
        fleet.on_room = self.changed
        self.changed(None)

    def adopt(self, config: Config) -> None:
        """A reload: who waits keeps his place in time. Raises PolicyConfigError."""
        if config != self.pools.queues[0].config:
            self.pools.adopt(config)
            self._loop.call_soon(self._tick)

    @property
    def is_fair(self) -> bool:
        """Whether the order shares by flow: a user's further requests need not step back then."""
        return self.pools.queues[0].is_fair

    # -- a request comes ----------------------------------------------------------------------

    def enter(self, x: Exchange, owner: Replica | None) -> Replica | None:
        """Where a request goes now; None: it waits. `owner`: nobody else can answer it.

        Raises RouterError: it may not even wait, or no replica will ever serve it.
        """
        model: str | None = x.view.model
        if owner is None:
            may_pass = x.concurrency is None or x.concurrency.may_pass(x.urgency.rank == BATCH)
            rank, now = x.urgency.rank, x.arrived
            fleet, pools, chooser = self._fleet, self.pools, self._chooser
            replica = at_once(fleet, pools, chooser, x.view, rank, now, may_pass)
            return self._offer(x, model or "", None) if replica is None else replica
        return self._offer(x, next(iter(owner.models or ()), model) or "", pinned(owner))

    def _offer(self, x: Exchange, model: str, lane: str | None) -> Replica | None:
        now = monotonic()
        self._news.catch_up(now)
        ticket = self._ticket(x, model, lane)
        try:
            found = self.pools.offer(ticket, now)
        finally:
            self._take_evicted(ticket.queue)
        x.ticket = ticket
        if not found:
            x.queued(now)
            self._arm()
            return None
        return self._chooser.choose(x.view, cast(Sequence[Replica], found))

    def relieve(self, flow: Flow, body_bytes: int) -> bool:
        """Let waiting requests of larger flows give way, because connections are short, or so many
        bytes of memory. Whether they free as much as is needed, in a moment."""
        now = monotonic()
        newcomer = Ticket(
            key=flow.account,
            user=flow.member,
            known_key=flow.is_known,
            names_user=flow.user != "",
            body_bytes=body_bytes,
        )
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
            missing -= victim.body_bytes
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
                self._loop.call_soon(self._answer_evicted)
            for gone in queue.evicted:
                self._freeing += gone.ticket.body_bytes
                self._evicted.append(gone)
            queue.evicted = []

    def _answer_evicted(self) -> None:
        evicted, self._evicted = self._evicted, []
        self._freeing = 0
        for gone in evicted:
            request = gone.ticket.request
            if request is not None:
                cast("Exchange", request).answer(gone.error)

    def commits(self, ticket: Ticket) -> bool:
        """Whether the client of a request may be sent an early 200: see the queue."""
        return self.pools.commits(ticket)

    def _ticket(self, x: Exchange, model: str, lane: str | None) -> Ticket:
        view, fields = x.view, x.fields
        flow = x.flow
        most: int | None = fields.output_tokens
        output = -1
        if fields.n is not None and fields.n > 1:
            output = min(fields.n, _CHOICES) * (most or _OUTPUT)
        return Ticket(
            x,
            model=model,
            lane=lane,
            number=x.urgency.number,
            key=flow.account,
            user=flow.member,
            known_key=flow.is_known,
            names_user=flow.user != "",
            weight=1.0 if x.key is None else x.key.weight,
            tokens=view.prompt_tokens,
            output=output,
            most_output=-1 if most is None else most,
            arrival=x.arrived,
            deadline=x.wanted_until,
            body_bytes=x.body_bytes,
            streamed=bool(fields.stream),
            look=partial(self._knowledge.held, view) if view.blocks else None,
            block_tokens=view.block_tokens,
            concurrency=x.concurrency,
        )

    # -- what its race tells ------------------------------------------------------------------

    def sent(self, x: Exchange, replica: Replica, now: float, *, is_extra: bool) -> None:
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
        elif ticket.state == SENT and ticket.place is not replica:
            self.pools.moved(ticket, replica, now)
        if x.body_bytes > x.limits.retry_body or not x.route.repeatable:
            self.pools.stays(ticket)

    def _uncount(self, x: Exchange, now: float) -> None:
        """A request without a ticket is at no replica any more."""
        if x.is_counted:
            x.is_counted = False
            assert x.concurrency is not None
            x.concurrency.give(x.urgency.rank == BATCH, now)

    def over(self, x: Exchange, reason: Reason, now: float) -> None:
        """The request has ended; its leases are released. If its key has limits, the caller calls
        `wake` next."""
        if x.concurrency is not None:
            self._uncount(x, now)
        ticket = x.ticket
        if ticket is not None:
            x.ticket = None
            ticket.request = None
            if ticket.state != SENT:
                self.pools.leave(ticket)
                self._arm()
                return
        end = end_of(reason)
        usage, replica = x.usage, x.answered_by
        tokens, output = -1, 0
        if replica is not None or usage is not UNKNOWN:
            told = usage.output_tokens
            if told is not None:
                output = told
            elif reason is Reason.OK:
                output = -1  # nobody counted
            if usage.prompt_tokens is not None:
                tokens = max(0, usage.prompt_tokens - (usage.cached_tokens or 0))
        if ticket is not None:
            self.pools.settle(ticket, tokens, output, now, end)
            ticket.place = None  # the queue may keep the ticket for a while, but not a replica
        elif x.life.attempts:
            last = x.life.attempts[-1]
            place = cast(Replica, last.at) if replica is None else replica
            prompt = x.view.prompt_tokens
            flow = (x.flow.account, x.flow.member)
            self.pools.passed(place, flow, prompt, output, last.began, now, end)

    # -- what the fleet tells -----------------------------------------------------------------

    def changed(self, replica: Replica | None) -> None:
        """A replica's facts are others now; None: who is fit, or what they may have, is."""
        if self._news.note(replica):
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        """What has changed in this turn of the event loop is told to the queue."""
        now = monotonic()
        begun: list[tuple[Exchange, Leg]] = []
        changed = self._news.read(now)
        if self.pools.is_woken:
            self._send_woken(begun, now)  # first, else all of them go where one has just ended
        for replica in changed:
            self._begin(self.pools.freed(replica, now), begun, now)
        self._go(begun)
        self._arm()

    def wake(self) -> None:
        """Requests may be sent that their keys' limits blocked: at the end of this turn."""
        if self.pools.is_woken and self._news.await_reading():
            self._loop.call_soon(self._settle)

    def _send_woken(self, begun: list[tuple[Exchange, Leg]], now: float) -> None:
        """Those that a key's limit blocked go where the routing policy wants them, as newcomers
        do: there may be room at many replicas."""
        while True:
            found = self.pools.woken(now)
            if found is None:
                break
            ticket, places = found
            x = cast("Exchange", ticket.request)
            replica = self._chooser.choose(x.view, cast(Sequence[Replica], places))
            self.pools.grant(ticket, replica, now)
            self._begin([ticket], begun, now)

    # -- what the queue tells -----------------------------------------------------------------

    def _begin(self, granted: list[Ticket], begun: list[tuple[Exchange, Leg]], now: float) -> None:
        """Take the leases of all of them; nothing else happens meanwhile."""
        for ticket in granted:
            x = cast("Exchange", ticket.request)
            x.granted(now)
            self._metrics.waited(x.priority, now - ticket.arrival)
            begun.append((x, x.race.prepare(cast(Replica, ticket.place))))

    def _go(self, begun: list[tuple[Exchange, Leg]]) -> None:
        for x, leg in begun:
            x.race.go(leg)

    def _arm(self) -> None:
        """Set the timer to when time alone changes something."""
        self.wake()
        due = self.pools.next_at
        timer = self._timer
        if timer is not None:
            if self._due <= due < inf:
                return  # it rings early enough, and sets itself anew
            timer.cancel()
            self._timer = None
        if due < inf:
            self._due = due
            self._timer = self._loop.call_later(max(LEAST_S, due - monotonic()), self._tick)

    def _tick(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        now = monotonic()
        ticked = self.pools.tick(now)
        begun: list[tuple[Exchange, Leg]] = []
        self._begin(ticked.granted, begun, now)
        self._go(begun)
        for expired in ticked.expired:
            gone = expired.ticket.request
            if gone is not None:
                cast("Exchange", gone).answer(expired.error)
        for victim in ticked.preempt:
            self.recall(victim, now)
        hurry = self.hurry
        if hurry is not None:
            for place in ticked.polls:
                hurry(cast(Replica, place))
        self._arm()

    def wait_again(self, x: Exchange, replica: Replica) -> bool:
        """A request did not reach its replica, and no other one is fit: it waits, as it would if
        the replica was known to be down. False: it has waited so for as long as its class may."""
        now = monotonic()
        ticket = x.ticket
        model = x.view.model or "" if ticket is None else ticket.model
        if not x.unreached_since:
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
                x.race.begin(other)
            return True
        if not self.pools.requeue(ticket, now):
            return False
        x.queued(now)
        self.changed(replica)
        return True

    def recall(self, ticket: Ticket, now: float) -> None:
        """It gives way to somebody more urgent: its engine stops, and it waits again."""
        request = ticket.request
        if request is None or ticket.state != SENT or ticket.shown:
            return  # it has ended, or shown something, in this very turn
        x, place = cast("Exchange", request), cast(Replica, ticket.place)
        x.race.recall(now)
        if self.pools.requeue(ticket, now):
            x.queued(now)
            self.changed(place)  # there may be room for both


def _waiting(queue: Queue) -> int:
    return queue.waiting


def _body_bytes(queue: Queue) -> int:
    return queue.body_bytes
