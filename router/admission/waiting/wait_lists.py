"""Holds the waiting tickets of a queue: lanes, class queues, flows and deadlines.

Must never: decide which ticket goes next, or answer a client.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Final, cast

from policies.queueing.base import BaseLine
from policies.queueing.foreign import Failures, line_of
from policies.queueing.ticket import CLASSES, INFINITY, WAITING, Ticket
from router.admission.concurrency import Concurrency, LimitedQueue
from router.admission.extra import Extras
from router.admission.rules import Rules
from router.admission.service_rate import UNKNOWN_S, ServiceRate
from router.admission.waiting.class_queue import ClassQueue, Lane
from router.admission.waiting.holders import Holders
from router.admission.waiting.stride import Stride
from router.core.errors import Reason
from router.core.urgency import BATCH, CRITICAL, HIGH

_LANES: Final = 64  # A lane that becomes empty is removed if there are more lanes than this.


class Orders:
    """Numbers the arriving requests, over all queues between which tickets may move."""

    __slots__ = ("failures", "is_woken", "last")

    def __init__(self) -> None:
        self.failures = Failures()  # The failures of all order policies.
        self.last = 0
        self.is_woken = False  # The driver must call `woken` for at least one queue.

    def next(self) -> int:
        """Return the number of a request that arrives now."""
        self.last += 1
        return self.last


class WaitLists:
    """The waiting tickets of one queue."""

    __slots__ = (
        "_deadlines",
        "_extras",
        "_lanes",
        "_orders",
        "_rules",
        "_service_rate",
        "_turns",
        "active",
        "count",
        "eligible",
        "eligible_of",
        "holders",
        "picky",
        "short",
        "woken",
    )

    def __init__(
        self,
        rules: Rules,
        stride: Stride,
        extras: Extras,
        service_rate: ServiceRate,
        orders: Orders,
    ) -> None:
        self._rules = rules
        self.count = 0  # Number of waiting tickets.
        # Number of waiting tickets that the limit of their API key does not block.
        self.eligible = 0
        # Number of waiting tickets that the limit of their API key does not block, by class.
        self.eligible_of = stride.waiting
        # Class queues with tickets that were unblocked and for which no replica was searched yet.
        self.woken: dict[ClassQueue, None] = {}
        # Queues of API keys from which an eligible ticket was dropped, so that a blocked one may
        # follow.
        self.short: dict[KeyQueue, None] = {}
        self._service_rate = service_rate
        self._orders = orders
        self.active: dict[str, Lane] = {}  # Lanes with waiting tickets.
        self._lanes: dict[str, Lane] = {}  # Lanes with waiting tickets, or kept for reuse.
        self.holders = Holders(rules.bytes)  # The parties with waiting requests.
        # Tickets that may not go to every replica of their lane.
        self.picky: dict[Ticket, None] = {}
        # Heap of (deadline, order, id of the ticket, ticket), including tickets that no longer
        # wait.
        self._deadlines: list[Any] = []
        self._turns = stride
        self._extras = extras

    def reline(self) -> None:
        """Move all waiting tickets to lines of the current policy, in their order of arrival."""
        self._lanes = dict(self.active)
        for lane in self.active.values():
            for urgency, class_queue in enumerate(lane.class_queues):
                if class_queue is None or not (class_queue.count or class_queue.keys):
                    lane.class_queues[urgency] = None
                    continue
                self._reline(class_queue)
                for key_queue in class_queue.keys.values():
                    self._reline(key_queue)

    def _reline(self, class_queue: ClassQueue) -> None:
        tickets = sorted(class_queue.tickets(), key=_order)
        for ticket in tickets:
            class_queue.line.drop(ticket)
        class_queue.line = self._line(class_queue.urgency)
        class_queue.short.clear()
        for ticket in tickets:
            class_queue.line.push(ticket, ticket.arrival)

    def _line(self, urgency: int) -> BaseLine:
        return line_of(self._rules.order, urgency, self._orders.failures)

    # -- arrivals and departures --------------------------------------------------------------

    def has(self, lane: str, urgency: int) -> bool:
        """Whether a ticket of the class waits in the lane and is not blocked."""
        found = self.active.get(lane)
        if found is None:
            return False
        class_queue = found.class_queues[urgency]
        return class_queue is not None and class_queue.count > 0

    def urgent_waits(self) -> bool:
        """Whether a critical or high request waits that the limit of its API key does not block."""
        return self.eligible_of[CRITICAL] + self.eligible_of[HIGH] > 0

    def is_before(self, lane: str, urgency: int, now: float) -> bool:
        """Whether a ticket of the class waits in the lane that goes before a new request. A ticket
        that its line calls lost does not."""
        if not self.has(lane, urgency):
            return False
        class_queue = self.active[lane].class_queues[urgency]
        assert class_queue is not None
        first = class_queue.line.first(now)
        return first is None or not class_queue.line.is_lost(first, now)

    def allows_early_status(self, ticket: Ticket) -> bool:
        """Whether the client of a waiting ticket may be sent an early 200, before the request is
        served."""
        return self.holders.allows_early_status(ticket, self._rules.classes[ticket.urgency].depth)

    def enter(self, ticket: Ticket, now: float) -> None:
        """Add a ticket that begins to wait. No limit is checked."""
        urgency = ticket.urgency
        ticket.state = WAITING
        ticket.skips = 0
        lane = self._lanes.get(ticket.lane)
        if lane is None:
            lane = self._lanes[ticket.lane] = Lane(ticket.lane)
        class_queue = lane.class_queues[urgency]
        if class_queue is None:
            class_queue = lane.class_queues[urgency] = ClassQueue(
                lane, urgency, self._line(urgency)
            )
        if not lane.count:
            self.active[ticket.lane] = lane
        lane.count += 1
        self.count += 1
        self.holders.enter(ticket)
        if ticket.excluded:
            self.picky[ticket] = None
        # The deadline is stored even if the class of the ticket uses no deadline, because a reload
        # may change that.
        if ticket.deadline < INFINITY:
            heappush(self._deadlines, (ticket.deadline, ticket.order, id(ticket), ticket))
        concurrency: Concurrency | None = ticket.concurrency
        if concurrency is not None:
            known = class_queue.keys.get(concurrency)
            key_queue = None if known is None else cast(KeyQueue, known)
            if key_queue is None:
                key_queue = KeyQueue(self, class_queue, concurrency, self._line(urgency))
                class_queue.keys[concurrency] = key_queue
                concurrency.key_queues[key_queue] = None
            if key_queue.count or len(key_queue.standing) >= concurrency.free(urgency == BATCH):
                key_queue.enter(ticket, now)
                return
            key_queue.standing[ticket] = None
        self._stand(ticket, class_queue, now)

    def _stand(self, ticket: Ticket, class_queue: ClassQueue, now: float) -> None:
        """Add a ticket that its API key's limit does not block to the line of its class queue."""
        urgency = class_queue.urgency
        if not self.eligible_of[urgency]:
            self._service_rate.began(urgency, now, is_first=not self.eligible)
        self.eligible += 1
        self._turns.begins(urgency)
        for extra in self._extras.all:
            extra.waits(ticket, now)
        ticket.eligible_since = now
        class_queue.enter(ticket, now)

    def _step_out(self, ticket: Ticket, class_queue: ClassQueue) -> None:
        """Stop counting a ticket that was removed from the line of its class queue."""
        urgency = class_queue.urgency
        self.eligible -= 1
        self._turns.ends(urgency)
        for extra in self._extras.all:
            extra.left(ticket)
        class_queue.left(ticket)

    # -- limits of keys -----------------------------------------------------------------------

    def block(self, key_queue: KeyQueue, now: float) -> None:
        """Block the ticket of an API key that was unblocked last, because the key may send fewer
        now."""
        ticket, _ = key_queue.standing.popitem()
        class_queue = key_queue.class_queue
        class_queue.line.drop(ticket)
        ticket.class_queue = key_queue  # The class queue must not count the ticket any more.
        self._step_out(ticket, class_queue)
        key_queue.enter(ticket, now)

    def unblock(self, key_queue: KeyQueue, now: float) -> None:
        """Unblock the next ticket of an API key, because the key may send one more request."""
        ticket = key_queue.line.first(now)
        eldest = key_queue.eldest()
        if self._rules.order.starves and eldest is not None:
            promote_s = self._rules.classes[key_queue.urgency].promote_s
            if now >= eldest.arrival + promote_s:
                ticket = eldest
        assert ticket is not None
        key_queue.line.drop(ticket)
        ticket.class_queue = None
        key_queue.left(ticket)
        key_queue.standing[ticket] = None
        self._stand(ticket, key_queue.class_queue, now)
        self.woken[key_queue.class_queue] = None
        self._orders.is_woken = True

    def refill(self, now: float) -> None:
        """Unblock tickets of API keys in place of dropped tickets."""
        short, self.short = self.short, {}
        for key_queue in short:
            key_queue.fit(now)

    def left(self, ticket: Ticket, state: int) -> None:
        """Stop counting a ticket that no longer waits and was already removed from its line.

        The state of the ticket becomes `state`.
        """
        ticket.state = state
        if ticket.excluded:
            self.picky.pop(ticket, None)
        class_queue: ClassQueue = ticket.class_queue
        ticket.class_queue = None
        key_queue: KeyQueue | None = None
        if isinstance(class_queue, KeyQueue):
            key_queue = class_queue
            class_queue = key_queue.class_queue
            key_queue.left(ticket)
        else:
            self._step_out(ticket, class_queue)
            if ticket.concurrency is not None:
                key_queue = cast(KeyQueue, class_queue.keys[ticket.concurrency])
                del key_queue.standing[ticket]
        if key_queue is not None and not key_queue.count and not key_queue.standing:
            del class_queue.keys[key_queue.concurrency]
            del key_queue.concurrency.key_queues[key_queue]
        lane = class_queue.lane
        lane.count -= 1
        if not lane.count:
            del self.active[ticket.lane]
            if len(self._lanes) > _LANES:
                del self._lanes[ticket.lane]
        self.count -= 1
        if len(self._deadlines) > 64 + 2 * self.count:
            self._deadlines = [e for e in self._deadlines if e[3].state == WAITING]
            heapify(self._deadlines)
        self.holders.left(ticket)

    def drop(self, ticket: Ticket, state: int) -> None:
        """Remove a ticket that was not served. The state of the ticket becomes `state`."""
        class_queue: ClassQueue = ticket.class_queue
        class_queue.line.drop(ticket)
        if not class_queue.is_blocked and ticket.concurrency is not None:
            key_queue = cast(KeyQueue, class_queue.keys[ticket.concurrency])
            if key_queue.count:
                self.short[key_queue] = None
                self._orders.is_woken = True
        self.left(ticket, state)

    # -- queries ------------------------------------------------------------------------------

    def next_deadline(self) -> Ticket | None:
        """Return the waiting ticket with the earliest client deadline; `None`: there is none."""
        deadlines = self._deadlines
        while deadlines:
            ticket: Ticket = deadlines[0][3]
            if ticket.state == WAITING:
                return ticket
            heappop(deadlines)
        return None

    def ahead(self, ticket: Ticket, reason: Reason) -> int:
        """Return how many tickets must leave the queue before a request refused for `reason` may
        wait."""
        if reason is Reason.QUEUE_FLOW_FULL:
            return self.holders.waiting_of(ticket)
        return self.holders.depth(ticket.urgency)

    def retry_after_s(self, urgency: int, ahead: int, now: float) -> int:
        """Return the expected whole seconds until `ahead` tickets of a class are served.

        While all waiting tickets are blocked by the limits of their API keys, no service rate is
        known.
        """
        if not self.eligible:
            return UNKNOWN_S
        known = urgency if self.eligible_of[urgency] else None
        return self._service_rate.retry_after_s(known, ahead, now)

    def ahead_at_least(self, ticket: Ticket) -> int:
        """Return a lower bound of the number of tickets that are sent before a new ticket; 0:
        unknown."""
        order = self._rules.order
        if order.by_arrival:
            lane = self.active.get(ticket.lane)
            class_queue = None if lane is None else lane.class_queues[ticket.urgency]
            return 0 if class_queue is None else class_queue.count
        if order.is_fair:
            return self.holders.waiting_in(ticket)
        return 0

    def ages_s(self, now: float, *, is_eligible: bool = False) -> list[float]:
        """Return the seconds that each class's oldest ticket has waited; 0: no ticket waits.

        `is_eligible`: tickets that the limit of their API key blocks do not count.
        """
        ages = [0.0] * CLASSES
        for lane in self.active.values():
            for class_queue in lane.all_queues():
                if is_eligible and class_queue.is_blocked:
                    continue
                eldest = class_queue.eldest()
                if eldest is not None:
                    urgency = eldest.urgency
                    ages[urgency] = max(ages[urgency], now - eldest.arrival)
        return ages

    def tickets(self) -> list[Ticket]:
        """Return all waiting tickets, in no particular order."""
        found: list[Ticket] = []
        for lane in self.active.values():
            for class_queue in lane.all_queues():
                found.extend(class_queue.tickets())
        return found


class KeyQueue(ClassQueue, LimitedQueue):
    """The tickets of one API key with a limit that wait in one class queue.

    As many of these tickets as the key may send now are in the line of the class queue
    (`standing`). The other tickets are blocked and are in a line of this queue, which the same
    order policy orders. So the policy decides which ticket of the key comes next, and the users of
    one key share its limit.
    """

    __slots__ = ("class_queue", "concurrency", "standing", "wait_lists")

    def __init__(
        self,
        wait_lists: WaitLists,
        class_queue: ClassQueue,
        concurrency: Concurrency,
        line: BaseLine,
    ) -> None:
        super().__init__(class_queue.lane, class_queue.urgency, line)
        self.is_blocked = True
        self.wait_lists = wait_lists
        self.class_queue = class_queue
        self.concurrency = concurrency
        self.standing: dict[Ticket, None] = {}

    def fit(self, now: float) -> None:
        """Block or unblock tickets of the API key until the `line` of the class queue has as many
        of them as the key may send now."""
        free = self.concurrency.free(self.urgency == BATCH)
        while self.standing and len(self.standing) > free:
            self.wait_lists.block(self, now)
        while self.count and len(self.standing) < free:
            self.wait_lists.unblock(self, now)

    def blocked(self) -> tuple[int, float]:
        if not self.count or self.urgency == BATCH:
            return 0, INFINITY
        eldest = self.eldest()
        return self.count, INFINITY if eldest is None else eldest.arrival


def _order(ticket: Ticket) -> int:
    return ticket.order
