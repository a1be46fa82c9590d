"""The queue in front of one model pool. What it promises and how it is driven: see the package.

Must never: do I/O, look at a clock, or call back whoever drives it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Final

from policies.queueing.contract import OrderPolicy, make_order
from policies.queueing.ticket import CLASSES, ENDED, NEW, SENT, WAITING, Ticket
from router.admission.choice import Choice, cost
from router.admission.counts import QueueCounts
from router.admission.door import Door, Doors
from router.admission.drain import Drain
from router.admission.outputs import Outputs
from router.admission.place import Place, Pool
from router.admission.preemption import Preemption
from router.admission.reservations import Reservations
from router.admission.row import Lane, Row
from router.admission.rules import HIGH, NAMES, Rules
from router.config.model import Queue as Config
from router.core.errors import Reason, RouterError

# How an attempt ended, as far as it teaches anything.
DONE: Final = 0
CANCELLED: Final = 1  # its output is not what it would have been
REFUSED: Final = 2  # the replica had no room, or its time was over

_AT_ONCE: Final = 1024  # promotions or expiries of one row in one tick: the rest comes in the next
_NOBODY: Final[tuple[Place, ...]] = ()
_NONE: Final[list[Ticket]] = []


class Expired:
    """A ticket whose time was over while it waited, and what its client is told."""

    __slots__ = ("error", "ticket")

    def __init__(self, ticket: Ticket, error: RouterError) -> None:
        self.ticket = ticket
        self.error = error


class Ticked:
    """What a tick wants done, in this order."""

    __slots__ = ("expired", "granted", "polls", "preempt")

    def __init__(self) -> None:
        self.expired: list[Expired] = []  # answer them; nothing else happens to them
        self.granted: list[Ticket] = []  # each has its `place`: as from `freed`
        self.preempt: list[Ticket] = []  # cancel them at their `place`, then `requeue` or `settle`
        self.polls: list[Place] = []  # poll them now: somebody waits for what they would say


class Orders:
    """The order of arrival, shared by queues between which tickets may move."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0


class Flow:
    """One user of one key, while he has something pending."""

    __slots__ = ("pending", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.pending = 0  # waiting or sent, counted only where there are steps


class Queue:
    """One queue: tickets in, places out."""

    __slots__ = (
        "_active",
        "_choice",
        "_deadlines",
        "_dirty",
        "_doors",
        "_drain",
        "_flows",
        "_known",
        "_lanes",
        "_order",
        "_orders",
        "_outputs",
        "_pool",
        "_preemption",
        "_reservations",
        "_rules",
        "_steps",
        "body_bytes",
        "config",
        "counts",
        "depth",
        "next_at",
        "waiting",
    )

    def __init__(
        self, config: Config, pool: Pool, *, steps: bool = False, orders: Orders | None = None
    ) -> None:
        """`steps`: a user's further pending requests step back within their class, where the order
        does not share by flow. Raises PolicyConfigError."""
        self.config = config
        self.counts = QueueCounts()
        self.waiting = 0
        self.next_at = inf  # when to tick at the latest; infinity: nothing waits
        self.depth = [0] * CLASSES  # that wait, by class
        self.body_bytes = 0  # held by those that wait
        self._pool = pool
        self._steps = steps
        self._orders = Orders() if orders is None else orders
        self._known = 0  # replicas, as the order policy was told
        self._dirty = False  # what a class may have has changed: a place may be free anywhere
        self._lanes: dict[str, Lane] = {}  # with somebody that waits, or that did a moment ago
        self._active: dict[str, Lane] = {}  # with somebody that waits
        self._flows: dict[tuple[str, str], Flow] = {}
        self._deadlines: list[Any] = []  # heap of (deadline, order, ticket), dead ones too
        self._outputs = Outputs()
        self._drain = Drain()
        self._order: OrderPolicy = make_order(config.policy, config.options)
        self._rules = Rules(config, by_class=self._order.by_class, steps=self._has_steps())
        classes = self._rules.classes
        self._doors = Doors(pool, classes)
        self._reservations = Reservations(
            classes, self._rules.reservations, self._rules.reserved_strictly
        )
        self._preemption = Preemption(self._rules)
        self._choice = Choice(self._rules, self._order, pool, self._reservations)

    def _has_steps(self) -> bool:
        return self._steps and not self._order.is_fair

    # -- arrivals -----------------------------------------------------------------------------

    def offer(self, ticket: Ticket, now: float) -> Sequence[Place]:
        """A request has come. The replicas it may go to at once: choose one, take its lease, and
        say `sent` before anything else. None of them: it waits, until a grant or its expiry.

        Raises RouterError if it may not even wait; the ticket has ended then.
        """
        urgency = ticket.urgency
        rules = self._rules
        orders = self._orders
        orders.last += 1
        ticket.order = orders.last
        ticket.queue = self
        if rules.step > 0.0:
            self._step(ticket)
        lane = self._active.get(ticket.lane)
        if lane is None or not self._has_row(lane, urgency):
            places = self._pool.eligible(ticket.lane)
            closed = self._doors.closed[urgency]
            if closed or ticket.excluded:
                excluded = ticket.excluded
                if len(closed) == len(self._doors.by_place):
                    places = _NOBODY
                else:
                    places = [p for p in places if p not in closed and p not in excluded]
            if places and (not rules.reservations or self._may_borrow(ticket)):
                return places
        self._enter(ticket, now)
        return _NOBODY

    def _has_row(self, lane: Lane, urgency: int) -> bool:
        row = lane.rows[urgency]
        return row is not None and row.count > 0

    def _may_borrow(self, ticket: Ticket) -> bool:
        self._predict(ticket)
        return self._reservations.allows(ticket.urgency, ticket.prompt + ticket.output)

    def _predict(self, ticket: Ticket) -> None:
        if ticket.output < 0:
            ticket.output = self._outputs.predict(ticket.key, ticket.user)

    def _step(self, ticket: Ticket) -> None:
        """The k-th pending request of a flow is k - 1 steps less urgent, within its class."""
        flow = self._flow(ticket)
        behind = ticket.urgency + 0.49
        stepped = ticket.number + self._rules.step * flow.pending
        ticket.level = max(ticket.number, min(stepped, behind))
        flow.pending += 1
        ticket.counted = True

    def _flow(self, ticket: Ticket) -> Flow:
        """The flow of one that begins to be counted."""
        name = (ticket.key, ticket.user)
        flow = self._flows.get(name)
        if flow is None:
            flow = self._flows[name] = Flow()
        ticket.flow = flow
        return flow

    def _unpend(self, ticket: Ticket) -> None:
        """It is over, whichever way."""
        if ticket.counted:
            ticket.counted = False
            flow: Flow = ticket.flow
            flow.pending -= 1
            self._tidy(ticket, flow)

    def _tidy(self, ticket: Ticket, flow: Flow) -> None:
        if not flow.waiting and not flow.pending and len(self._flows) > _FLOWS:
            del self._flows[(ticket.key, ticket.user)]

    def _enter(self, ticket: Ticket, now: float) -> None:
        rules = self._rules
        urgency = ticket.urgency
        flow = self._flow(ticket)
        reason: Reason | None = None
        if self.depth[urgency] >= rules.classes[urgency].depth:
            reason = Reason.QUEUE_FULL
        elif flow.waiting >= rules.flow_depth:
            reason = Reason.QUEUE_FLOW_FULL
        elif self.body_bytes + ticket.body_bytes > rules.bytes:
            reason = Reason.QUEUE_BYTES_FULL
        if reason is not None:
            ticket.state = ENDED
            self.counts.full[urgency] += 1
            ahead = flow.waiting if reason is Reason.QUEUE_FLOW_FULL else self.depth[urgency]
            self._tidy(ticket, flow)
            self._unpend(ticket)
            raise RouterError(
                reason,
                f"{_FULL[reason]} (class {NAMES[urgency]})",
                retry_after_s=self._drain.retry_after_s(urgency, ahead + 1, now),
            )
        self.counts.queued[urgency] += 1
        self._wait(ticket, flow, now)

    def _wait(self, ticket: Ticket, flow: Flow, now: float) -> None:
        self._predict(ticket)
        urgency = ticket.urgency
        ticket.state = WAITING
        ticket.skips = 0
        lane = self._lanes.get(ticket.lane)
        if lane is None:
            lane = self._lanes[ticket.lane] = Lane(ticket.lane)
        row = lane.rows[urgency]
        if row is None:
            row = lane.rows[urgency] = Row(urgency, self._order.line(urgency))
        if not lane.count:
            self._active[ticket.lane] = lane
            lane.absent_since = -1.0
        # The first that waits may be waiting for a poll; the tick says what comes after.
        soon_s = _SOON_S if self.waiting else self._rules.poll_early_s
        self.next_at = min(self.next_at, now + soon_s)
        lane.count += 1
        self.waiting += 1
        self.depth[urgency] += 1
        self.body_bytes += ticket.body_bytes
        flow.waiting += 1
        self._choice.turns.begins(urgency)
        ticket.reserved = ticket.prompt + ticket.output
        if self._rules.reservations:
            self._reservations.waits(urgency, ticket.reserved, now)
        if ticket.deadline < ticket.arrival + self._rules.classes[urgency].timeout_s:
            if len(self._deadlines) > 64 + 2 * self.waiting:
                self._deadlines = [e for e in self._deadlines if e[2].state == WAITING]
                heapify(self._deadlines)
            heappush(self._deadlines, (ticket.deadline, ticket.order, ticket))
        row.enter(ticket, now)

    def _unwait(self, ticket: Ticket, state: int) -> None:
        """It waits no longer; its line knows it already. It becomes `state`."""
        urgency = ticket.urgency
        ticket.state = state
        lane = self._lanes[ticket.lane]
        row = lane.rows[urgency]
        if row is not None:
            row.left(ticket)
        lane.count -= 1
        if not lane.count:
            del self._active[ticket.lane]
            if len(self._lanes) > _LANES:
                del self._lanes[ticket.lane]
        self.waiting -= 1
        self.depth[urgency] -= 1
        self.body_bytes -= ticket.body_bytes
        self._choice.turns.ends(urgency)
        if self._rules.reservations:
            self._reservations.left(urgency, ticket.reserved)
        flow: Flow = ticket.flow
        flow.waiting -= 1
        self._tidy(ticket, flow)

    def _line_drops(self, ticket: Ticket) -> None:
        row = self._lanes[ticket.lane].rows[ticket.urgency]
        if row is not None:
            row.line.drop(ticket)

    # -- dispatches ---------------------------------------------------------------------------

    def sent(self, ticket: Ticket, place: Place, now: float) -> None:
        """The driver chose `place` of those it was offered, and has taken the lease."""
        if ticket.state != NEW:
            return
        self.counts.passed[ticket.urgency] += 1
        if self.waiting:
            self._predict(ticket)
            self._order.passed(ticket, now)
            ticket.priced = True
            self._choice.turns.serves(ticket.urgency, cost(ticket), float(ticket.urgency))
        door = self._doors.of(place)
        self._begin(ticket, door, now)
        self._doors.look(door)

    def _begin(self, ticket: Ticket, door: Door, now: float) -> None:
        ticket.state = SENT
        ticket.place = door.place
        ticket.sent_at = now
        ticket.shown = False
        rules = self._rules
        self._drain.served(ticket.urgency, now)
        if rules.preemption:
            self._preemption.sent(ticket)
        if rules.reservations:
            self._predict(ticket)
            ticket.reserved = ticket.prompt + ticket.output
            self._reservations.sent(ticket.urgency, ticket.reserved, now)
            door.used += ticket.reserved

    def _end(self, ticket: Ticket) -> None:
        """It is at its place no longer."""
        if self._rules.preemption:
            self._preemption.ended(ticket)
        if self._rules.reservations and ticket.reserved:
            self._reservations.ended(ticket.urgency, ticket.reserved)
            door = self._doors.by_place.get(ticket.place)
            if door is not None:
                door.used -= ticket.reserved
            ticket.reserved = 0
            self._dirty = True

    def freed(self, place: Place, now: float) -> list[Ticket]:
        """The facts of `place` have changed: a lease was released or taken outside of `sent`, the
        first content came, a poll came back, it is new or fit again.

        Returns the tickets that are to be sent now, each to its `place`. Take the leases of all of
        them before anything else is said to the queue.
        """
        doors = self._doors
        door = doors.of(place)
        doors.look(door)
        if not self.waiting:
            return _NONE
        if self._dirty and self._rules.reservations:
            self._dirty = False
            return self._fill_all(now)
        if not door.mask:
            return _NONE
        granted: list[Ticket] = []
        while self.waiting and door.mask:
            ticket = self._grant(door, now)
            if ticket is None:
                break
            granted.append(ticket)
        return granted

    def _fill_all(self, now: float) -> list[Ticket]:
        """A place each in turn, the emptiest replica first."""
        granted: list[Ticket] = []
        doors = [door for door in self._doors.by_place.values() if door.mask]
        doors.sort(key=_load)
        while doors and self.waiting:
            still: list[Door] = []
            for door in doors:
                ticket = self._grant(door, now) if door.mask else None
                if ticket is not None:
                    granted.append(ticket)
                    still.append(door)
            doors = still
        return granted

    def _grant(self, door: Door, now: float) -> Ticket | None:
        if not self.waiting:
            return None
        ticket = self._choice.next_for(door, self._active, now)
        if ticket is None:
            return None
        row = self._lanes[ticket.lane].rows[ticket.urgency]
        if row is not None:
            if row.looking and row.line.first(now) is not ticket:
                self.counts.skipped += 1
            row.line.take(ticket, now)
        ticket.priced = True
        self._unwait(ticket, SENT)
        self._begin(ticket, door, now)
        self.counts.granted[ticket.urgency] += 1
        door.poll_s = 0.0  # something came of it
        door.poll_at = min(door.poll_at, now + self._rules.poll_early_s)
        self._doors.grant(door, 1, self._uncached(ticket))
        return ticket

    def _uncached(self, ticket: Ticket) -> int:
        """Prompt tokens that its place does not hold."""
        if ticket.look is None or ticket.most == 0.0:
            return ticket.tokens
        held: float = ticket.known.get(ticket.place, 0) * ticket.block_tokens
        return max(0, ticket.prompt - int(held))

    def moved(self, ticket: Ticket, place: Place, now: float) -> None:
        """One that was sent goes on at another replica (a retry); its lease there is taken."""
        if ticket.state == SENT:
            door = self._doors.of(place)
            if self._rules.reservations:
                before = self._doors.by_place.get(ticket.place)
                if before is not None:
                    before.used -= ticket.reserved
                door.used += ticket.reserved
            ticket.place = place
            self._doors.look(door)

    # -- what becomes of them -----------------------------------------------------------------

    def shown(self, ticket: Ticket) -> None:
        """Its first content is with the client: nobody takes it back."""
        ticket.shown = True
        if self._rules.preemption:
            self._preemption.shown(ticket)

    def settle(self, ticket: Ticket, tokens: int, output: int, now: float, end: int = DONE) -> None:
        """One that was sent is over; its lease is released, and `freed` comes next.

        `tokens`, `output`: uncached prompt tokens and output tokens that it really cost; below 0:
        as predicted. Counts once, and only for what was sent.
        """
        if ticket.state != SENT:
            return
        ticket.state = ENDED
        self._end(ticket)
        self._unpend(ticket)
        if end == DONE and output >= 0:
            self._outputs.learn(ticket.key, ticket.user, output)
        if ticket.priced:
            ticket.priced = False
            self._order.settled(
                ticket,
                tokens if tokens >= 0 else ticket.tokens,
                output if output >= 0 else max(ticket.output, 0),
            )
        door = self._doors.by_place.get(ticket.place)
        if door is not None and door.learned is not None:
            if end == REFUSED:
                door.learned.failed(ticket.sent_at, now)
            elif end == DONE:
                work = 1.0 + max(output, 0) + ticket.tokens / 64.0
                door.learned.answered(ticket.sent_at, now, work, door.place.inflight)

    def leave(self, ticket: Ticket) -> bool:
        """Its client is gone. True: it waited, and is forgotten. False: it had ended, or it was
        sent and has to be settled."""
        if ticket.state == WAITING:
            self._line_drops(ticket)
            self._unwait(ticket, ENDED)
            self._unpend(ticket)
            self.counts.left[ticket.urgency] += 1
            self._dirty = True
            return True
        if ticket.state == NEW:
            ticket.state = ENDED
            self._unpend(ticket)
        return False

    def requeue(self, ticket: Ticket, now: float, into: Queue | None = None) -> bool:
        """One that was sent comes back to its old place, however full the queue is; its lease is
        released, and `freed` comes next. False: it has ended meanwhile, and stays so.

        `into`: the queue it waits in from now on, if that is another one.
        """
        if ticket.state != SENT:
            return False
        if ticket.preempting:
            ticket.preempted += 1
            self.counts.preempted[ticket.urgency] += 1
        self._end(ticket)
        if ticket.priced:
            ticket.priced = False
            self._order.refunded(ticket)
        ticket.place = None
        if into is None or into is self:
            self._wait(ticket, self._flow(ticket), now)
        else:
            self._unpend(ticket)
            into.receive(ticket, now)
        return True

    def told(self, ticket: Ticket, now: float) -> float:
        """The number an engine is told: its level, aged by its wait."""
        return self._rules.aged(ticket.level, now - ticket.arrival)

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now: float) -> Ticked:
        """Time has gone on: to be called at `next_at`, which any call may bring forward, or
        earlier."""
        ticked = Ticked()
        self.next_at = inf
        if not self.waiting:
            return ticked
        if self._rules.reservations:
            self._reservations.tick(now)
            self._reservations.capacity = self._doors.capacity()
        for lane in list(self._active.values()):
            self._tick_lane(lane, ticked, now)
        self._tick_deadlines(ticked, now)
        for door in self._doors.by_place.values():
            self._doors.look(door)
        if len(self._doors.by_place) != self._known:
            self._known = len(self._doors.by_place)
            self._order.sized(self._known)
        self._dirty = False
        ticked.granted = self._fill_all(now)
        if not self.waiting:
            self.next_at = inf
            return ticked
        if self._rules.reservations:
            self.next_at = min(self.next_at, now + _LOOK_S)
        if self._rules.preemption:
            self._preempt(ticked, now)
        self._poll_early(ticked, now)
        return ticked

    def _tick_lane(self, lane: Lane, ticked: Ticked, now: float) -> None:
        rules = self._rules
        places = self._pool.eligible(lane.name)
        for place in places:
            self._doors.of(place)
        is_absent = not places
        if not is_absent:
            lane.absent_since = -1.0
        elif lane.absent_since < 0.0:
            lane.absent_since = now
        gone = is_absent and now >= lane.absent_since + rules.absent_s
        if is_absent and not gone:
            self.next_at = min(self.next_at, lane.absent_since + rules.absent_s)
        for row in lane.rows:
            if row is None or not row.count:
                continue
            own = rules.classes[row.urgency]
            many = _AT_ONCE
            eldest = row.eldest()
            while eldest is not None and many and (gone or now >= eldest.arrival + own.timeout_s):
                reason = Reason.NO_REPLICA if gone else Reason.QUEUE_TIMEOUT
                self._expire(eldest, reason, ticked, now)
                many -= 1
                eldest = row.eldest()
            if eldest is None:
                continue
            promoted = row.promote(now, own.promote_s, _AT_ONCE)
            self.counts.promoted[row.urgency] += promoted
            due = now if not many or promoted == _AT_ONCE else self._due(row, eldest, now)
            self.next_at = min(self.next_at, due)

    def _due(self, row: Row, eldest: Ticket, now: float) -> float:
        """When time alone changes something for a row."""
        rules = self._rules
        own = rules.classes[row.urgency]
        due = eldest.arrival + own.timeout_s
        young = row.eldest_young()
        if young is not None:
            due = min(due, max(now, young.arrival + own.promote_s))
        if row.urgency > HIGH and rules.aging > 0.0:
            level = rules.aged(float(row.urgency), now - eldest.arrival)
            if level > HIGH:
                # The next half step, beyond which its gate is another class's.
                half = int(level + 0.5) - 0.5
                at = eldest.arrival + (row.urgency - half) / rules.aging + _MOMENT_S
                if at > now:
                    due = min(due, at)
        return due

    def _tick_deadlines(self, ticked: Ticked, now: float) -> None:
        deadlines = self._deadlines
        while deadlines:
            deadline, _, ticket = deadlines[0]
            if ticket.state == WAITING and deadline > now:
                self.next_at = min(self.next_at, deadline)
                return
            heappop(deadlines)
            if ticket.state == WAITING:
                self._expire(ticket, Reason.DEADLINE_PASSED, ticked, now)

    def _expire(self, ticket: Ticket, reason: Reason, ticked: Ticked, now: float) -> None:
        urgency = ticket.urgency
        ahead = self.depth[urgency]
        self._line_drops(ticket)
        self._unwait(ticket, ENDED)
        self._unpend(ticket)
        self.counts.expired[urgency] += 1
        error = RouterError(
            reason,
            f"{_OVER[reason]} (class {NAMES[urgency]}, {now - ticket.arrival:.1f} s)",
            retry_after_s=self._drain.retry_after_s(urgency, ahead, now),
        )
        ticked.expired.append(Expired(ticket, error))

    def _preempt(self, ticked: Ticked, now: float) -> None:
        """For each urgent one that has waited long enough, somebody gives way."""
        preemption = self._preemption
        after_s = self._rules.preempt_after_s
        wanted = preemption.asked
        for lane in self._active.values():
            for row in lane.rows:
                if row is None or not row.count or not preemption.wants(row.urgency):
                    continue
                eldest = row.eldest()
                if eldest is None:
                    continue
                if now < eldest.arrival + after_s:
                    self.next_at = min(self.next_at, eldest.arrival + after_s)
                    continue
                # Who was asked already makes room for as many.
                missing = row.count - wanted
                wanted = max(0, wanted - row.count)
                while missing > 0:
                    victim = preemption.victim(row.urgency, lane.name, self._pool, now)
                    if victim is None:
                        self.next_at = min(self.next_at, now + _SOON_S)
                        return
                    ticked.preempt.append(victim)
                    missing -= 1

    def _poll_early(self, ticked: Ticked, now: float) -> None:
        """A replica that is closed by what only a poll can take away is polled at once."""
        wanting = self._wanting()
        for door in self._doors.by_place.values():
            place = door.place
            if not wanting & ~door.mask:
                continue
            if place.whole_older + place.whole_fresh + place.foreign_waiting <= 0:
                continue
            if now >= door.poll_at:
                # As long as nothing comes of it, ever more rarely.
                door.poll_s = min(_SELDOM_S, max(self._rules.poll_early_s, 2.0 * door.poll_s))
                door.poll_at = now + door.poll_s
                ticked.polls.append(place)
            self.next_at = min(self.next_at, door.poll_at)

    def _wanting(self) -> int:
        """The classes somebody waits in, as bits."""
        found = 0
        for urgency in range(CLASSES):
            if self.depth[urgency]:
                found |= 1 << urgency
        return found

    # -- the fleet, and reloads ---------------------------------------------------------------

    def gone(self, place: Place) -> None:
        """It has left the fleet; what was sent there is settled as usual."""
        self._doors.forget(place)
        self._dirty = True

    def places(self) -> list[Place]:
        """The replicas it has heard of."""
        return list(self._doors.by_place)

    def waiting_of(self, models: Container[str]) -> int:
        """How many wait for these models."""
        return sum(1 for ticket in self.tickets() if ticket.model in models)

    def parted(self, queues: Mapping[str, Queue]) -> list[Ticket]:
        """Those that wait for models that have another queue now; they wait here no longer."""
        found = [t for t in self.tickets() if queues.get(t.model, self) is not self]
        for ticket in found:
            self._line_drops(ticket)
            self._unwait(ticket, NEW)
            self._unpend(ticket)
        return found

    def receive(self, ticket: Ticket, now: float) -> None:
        """One that waited elsewhere waits here, however full it is."""
        ticket.queue = self
        flow = self._flow(ticket)
        if self._rules.step > 0.0:
            flow.pending += 1
            ticket.counted = True
        self._wait(ticket, flow, now)

    def adopt(self, config: Config) -> None:
        """Other rules; who waits keeps his place in time. `tick` comes next.

        Raises PolicyConfigError, and changes nothing then.
        """
        before = self.config
        is_other = (config.policy, config.options) != (before.policy, before.options)
        order = make_order(config.policy, config.options) if is_other else self._order
        counted = self._rules
        self.config = config
        self._order = order
        self._rules = rules = Rules(config, by_class=order.by_class, steps=self._has_steps())
        # What is counted only while it matters stays as it was begun, until the next start.
        rules.reservations = counted.reservations
        rules.preemption = counted.preemption
        self._doors.adopt(rules.classes)
        self._reservations.adopt(rules.classes, rules.reservations, rules.reserved_strictly)
        self._preemption.adopt(rules)
        self._choice.adopt(rules, order)
        if not is_other:
            return
        self._known = 0
        self._lanes = dict(self._active)
        for lane in self._active.values():
            for urgency, row in enumerate(lane.rows):
                if row is None or not row.count:
                    lane.rows[urgency] = None
                    continue
                tickets = sorted(row.tickets(), key=_order)
                for ticket in tickets:
                    row.line.drop(ticket)
                row.line = order.line(row.urgency)
                for ticket in tickets:
                    row.line.push(ticket, ticket.arrival)

    # -- for those who look -------------------------------------------------------------------

    def flows(self) -> dict[tuple[str, str], int]:
        """How many wait, by key and user."""
        return {name: flow.waiting for name, flow in self._flows.items() if flow.waiting}

    def tickets(self) -> list[Ticket]:
        """All that wait, in no order that means anything."""
        found: list[Ticket] = []
        for lane in self._active.values():
            for row in lane.rows:
                if row is not None:
                    found.extend(row.tickets())
        return found

    def held_tokens(self, urgency: int) -> float:
        """Tokens that are kept for the class now, beyond those it uses."""
        return self._reservations.held(urgency)

    def used_tokens(self, urgency: int) -> int:
        return self._reservations.used[urgency]

    def is_open(self, place: Place, urgency: int) -> bool:
        """Whether one more of the class may go there."""
        return bool(self._doors.of(place).mask & (1 << urgency))


_SOON_S: Final = 0.1
_MOMENT_S: Final = 1e-3  # beyond a boundary, on which nobody can stand exactly
_SELDOM_S: Final = 1.0  # between two early polls of a replica, at most
_FLOWS: Final = 256  # kept though nothing of them is pending, to save making them again
_LANES: Final = 64  # kept though nobody waits in them; models and pins come and go
_LOOK_S: Final = 1.0  # between two looks at what reservations allow
_FULL: Final = {
    Reason.QUEUE_FULL: "as many requests wait as may",
    Reason.QUEUE_FLOW_FULL: "as many of your requests wait as may",
    Reason.QUEUE_BYTES_FULL: "what waits takes as much memory as it may",
}
_OVER: Final = {
    Reason.QUEUE_TIMEOUT: "no replica had room in time",
    Reason.DEADLINE_PASSED: "the deadline has passed while the request waited",
    Reason.NO_REPLICA: "no replica came up in time",
}


def _load(door: Door) -> int:
    return door.place.load


def _order(ticket: Ticket) -> int:
    return ticket.order
