"""Drives the admission queue on the virtual clock, as `dispatch/line.py` does on the event loop.

The queue (router/admission) is the proxy's own, and so is what it sees of the fleet; requests are
`SimulatedExchange`s. What changes a replica's facts is told to the queue at the end of the same
instant, behind all that was asked for before; the leases of all that one call granted are taken
before anything else happens; and one timer, that of time alone. Whoever changes what the other one
tells the queue, or when, changes it here, too: a test plays the same stories through both. Clients
get no early 200 here, so each request that waits may give way.

Must never: choose among requests (the queue does), or keep a ticket of a request that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import cast

from policies.queueing.ticket import NEW, SENT, Ticket
from router.admission.clockwork import Expired
from router.admission.counts import EVICTED, EXPIRIES, GONE, REFUSALS, QueueCounts
from router.admission.pools import Pools
from router.admission.queue import Queue
from router.config.model import Queue as Config
from router.core.errors import Reason, RouterError
from router.core.urgency import CLASSES as NAMES
from router.core.urgency import class_of
from router.dispatch.at_once import at_once
from router.dispatch.chooser import Chooser
from router.dispatch.ends import end_of
from router.dispatch.line import LEAST_S
from router.dispatch.news import News
from router.dispatch.places import Places
from router.fleet.knowledge import Knowledge
from router.fleet.replica import Replica
from router.fleet.table import Fleet
from router.observe.metrics import Metrics
from router.simulator.clock import Clock
from router.simulator.exchange import REPEATABLE, Leg, SimulatedExchange

_Begun = list[tuple[SimulatedExchange, Leg]]


class SimulatedLine:
    """The queues of one simulated router, driven."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        fleet: Fleet,
        knowledge: Knowledge,
        chooser: Chooser,
        metrics: Metrics,
    ) -> None:
        """Raises PolicyConfigError."""
        self._clock = clock
        self._fleet = fleet
        self._knowledge = knowledge
        self._chooser = chooser
        self._metrics = metrics
        places = Places(fleet)
        self.pools = Pools(config, places)
        self._news = News(fleet, places, self.pools)
        self.hurry: Callable[[Replica], None] | None = None  # polls a replica at once
        self._evicted: list[Expired] = []  # they gave way, and end in this instant
        self._due = inf  # when the timer rings
        fleet.on_room = self.changed
        self.changed(None)

    @property
    def is_fair(self) -> bool:
        """Whether the order shares by flow: a user's further requests need not step back then."""
        return self.pools.queues[0].is_fair

    # -- a request comes ----------------------------------------------------------------------

    def enter(self, x: SimulatedExchange, now: float) -> Replica | None:
        """Where a request goes now; None: it waits.

        Raises RouterError: it may not even wait, or no replica will ever serve it.
        """
        rank = class_of(x.urgency)
        replica = at_once(self._fleet, self.pools, self._chooser, x.view, rank, now, True)
        return self._offer(x, x.view.model or "", now) if replica is None else replica

    def _offer(self, x: SimulatedExchange, model: str, now: float) -> Replica | None:
        self._news.catch_up(now)
        ticket = self._ticket(x, model)
        try:
            found = self.pools.offer(ticket, now)
        finally:
            queue: Queue = ticket.queue
            if queue.evicted:
                self._evicted += queue.evicted
                queue.evicted = []
                self._clock.at(now, self._answer_evicted)
        x.ticket = ticket
        if not found:
            x.queued(now)
            self._arm()
            return None
        return self._chooser.choose(x.view, cast(Sequence[Replica], found))

    def _answer_evicted(self, now: float) -> None:
        """End those that gave way to a newcomer, behind all that was asked for in this instant."""
        evicted, self._evicted = self._evicted, []
        for gone in evicted:
            request = gone.ticket.request
            if request is not None:
                cast(SimulatedExchange, request).expired(gone.error.reason, now)

    def _ticket(self, x: SimulatedExchange, model: str) -> Ticket:
        view, arrival, flow = x.view, x.arrival, x.flow
        return Ticket(
            x,
            model=model,
            number=x.urgency,
            key=flow.account,
            user=flow.member,
            known_key=flow.is_known,
            names_user=flow.user != "",
            tokens=view.prompt_tokens,
            arrival=arrival.at,
            body_bytes=view.prompt_bytes,
            streamed=x.streamed,
            look=partial(self._knowledge.held, view) if view.blocks else None,
            block_tokens=view.block_tokens,
        )

    # -- what its attempts tell ---------------------------------------------------------------

    def sent(self, x: SimulatedExchange, replica: Replica, now: float, *, is_extra: bool) -> None:
        """An attempt begins; its lease is taken. `is_extra`: it is not its ticket's."""
        ticket = x.ticket
        if ticket is None or is_extra:
            self.changed(replica)
            return
        if ticket.state == NEW:
            self.pools.sent(ticket, replica, now)
        elif ticket.state == SENT and ticket.place is not replica:
            self.pools.moved(ticket, replica, now)
        if x.arrival.kind not in REPEATABLE:
            self.pools.stays(ticket)

    def over(
        self,
        x: SimulatedExchange,
        reason: Reason,
        replica: Replica | None,
        tokens: int,
        output: int,
        now: float,
    ) -> None:
        """The request has ended, in whatever way; its leases are released.

        `replica`: who answered. `tokens`, `output`: what it cost, as far as its engine told; see
        `Queue.settle`.
        """
        ticket = x.ticket
        if ticket is not None:
            x.ticket = None
            ticket.request = None
            if ticket.state != SENT:
                self.pools.leave(ticket)
                self._arm()
                return
        end = end_of(reason)
        if ticket is not None:
            self.pools.settle(ticket, tokens, output, now, end)
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
            self._clock.at(self._clock.now, self._settle)

    def _settle(self, now: float) -> None:
        """What has changed in this instant is told to the queue."""
        begun: _Begun = []
        for replica in self._news.read(now):
            self._begin(self.pools.freed(replica, now), begun, now)
        self._go(begun, now)
        self._arm()

    # -- what the queue tells -----------------------------------------------------------------

    def _begin(self, granted: list[Ticket], begun: _Begun, now: float) -> None:
        """Take the leases of all of them; nothing else happens meanwhile."""
        for ticket in granted:
            x = cast(SimulatedExchange, ticket.request)
            x.granted(now)
            self._metrics.waited(NAMES[class_of(x.urgency)], now - ticket.arrival)
            begun.append((x, x.prepare(cast(Replica, ticket.place), now)))

    def _go(self, begun: _Begun, now: float) -> None:
        for x, leg in begun:
            x.go(leg, now)

    def _arm(self) -> None:
        """Set the timer to when time alone changes something."""
        due = self.pools.next_at
        if due < self._due:  # else it rings early enough, and sets itself anew
            self._due = max(self._clock.now + LEAST_S, due)
            self._clock.at(self._due, self._tick)

    def _tick(self, now: float) -> None:
        if now != self._due:
            return  # it was set to another time
        self._due = inf
        ticked = self.pools.tick(now)
        begun: _Begun = []
        self._begin(ticked.granted, begun, now)
        self._go(begun, now)
        for expired in ticked.expired:
            gone = expired.ticket.request
            if gone is not None:
                cast(SimulatedExchange, gone).expired(expired.error.reason, now)
        for victim in ticked.preempt:
            self.recall(victim, now)
        hurry = self.hurry
        if hurry is not None:
            for place in ticked.polls:
                hurry(cast(Replica, place))
        self._arm()

    def wait_again(self, x: SimulatedExchange, replica: Replica, now: float) -> bool:
        """A request did not reach its replica, and no other one is fit: it waits, as it would if
        the replica was known to be down. False: it has waited so for as long as its class may."""
        ticket = x.ticket
        model = x.view.model or "" if ticket is None else ticket.model
        if x.unreached_since < 0.0:
            x.unreached_since = now
        rank = class_of(x.urgency) if ticket is None else ticket.urgency
        if now >= x.unreached_since + self.pools.of(model).absent_s(rank):
            return False
        self.pools.unreached(replica, now)
        if ticket is None:
            try:
                other = self._offer(x, model, now)
            except RouterError:
                return False
            if other is not None:
                x.begin(other, now)
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
            return  # it has ended, or shown something, in this very instant
        x, place = cast(SimulatedExchange, request), cast(Replica, ticket.place)
        x.recall(now)
        if self.pools.requeue(ticket, now):
            x.queued(now)
            self.changed(place)  # there may be room for both


def counted(lines: Iterable[SimulatedLine | None]) -> dict[str, tuple[int, ...]]:
    """What all queues together have done, by class, as in `QueueCounts`; empty: there are none."""
    found = [line for line in lines if line is not None]
    if not found:
        return {}
    total = QueueCounts()
    for line in found:
        for one in (line.pools.past, *(queue.counts for queue in line.pools.queues)):
            total.add(one)
    return {
        "passed": tuple(total.passed),
        "queued": tuple(total.queued),
        "granted": tuple(total.granted),
        "inverted": tuple(total.inverted),
        "promoted": tuple(total.promoted),
        "preempted": tuple(total.preempted),
        "refused": _dropped(total, (*REFUSALS, EVICTED)),
        "expired": _dropped(total, (*EXPIRIES, GONE)),
    }


def _dropped(total: QueueCounts, reasons: Iterable[str]) -> tuple[int, ...]:
    by_reason = [total.dropped[reason] for reason in reasons]
    return tuple(map(sum, zip(*by_reason, strict=True)))
