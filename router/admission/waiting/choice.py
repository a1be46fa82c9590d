"""Chooses the ticket that is sent to a free replica: first its class, then its lane, then the
ticket.

1. Find the class queues whose tickets may go to the replica now: the replica serves their lane, its
   facts allow the aged class of the oldest ticket, the extras (`extra.py`) allow the first ticket,
   and no request of another router goes first (`elsewhere.py`). If the gate is open only because of
   the oldest ticket's age, only tickets of sufficient age are sent. While a critical or high ticket
   waits for a free slot of the replica, the replica gets no ticket. The routing policy may keep the
   class away (`_opens`).

   Class batch has limits of its own: the headroom (`headroom.py`), and few waiting requests at a
   replica. If only these limits close the gate, class batch still has a *turn* in these cases
   (`_batch_turn`), in which the limit of waiting requests is that of the other classes:
   - A ticket of another class may go to the replica, too, or a request of another router. The
     replica gets one more request in both cases, so the headroom is not kept free. If the classes
     have no turns by weight, this applies only to a critical or high request, and to slots of the
     headroom.
   - The classes have turns by weight, and class batch is behind its share. Requests of other
     classes that are sent without a wait count for the shares.
   - The oldest batch ticket is as old as a ticket of class low.
   In a turn, the order policy chooses the ticket, so the tenants of class batch share its turns.
   Age changes the limits of KV cache usage and of the time per token in a turn, but opens no gate
   otherwise until the ticket is starved: tickets that arrived together would be sent together.
2. Choose among the classes. Class critical is first. The next is a class whose oldest ticket is
   starved. While other classes have tickets, starved classes get at most every other dispatch;
   several starved classes take turns. Among the remaining classes, the choice is by weight and age
   (`stride.py`), or as `queue.order` says: the most urgent class first, or the order policy
   compares the first tickets of all classes.
3. Choose within the class queue: the order policy's first ticket, or another ticket whose prompt is
   cached at the replica to a larger part, if the policy allows that ticket to go first. A starved
   ticket is first if the policy could otherwise skip it for ever.

Must never: change anything but stride passes, starvation turns and skip counts.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES, INFINITY, Ticket
from router.admission.elsewhere import Elsewhere, Yielding
from router.admission.extra import Extras
from router.admission.gates.gate_cache import CachedGate
from router.admission.pool import Pool
from router.admission.rules import STRICT, TOGETHER, WEIGHTED, Rules
from router.admission.waiting.class_queue import ClassQueue, Lane
from router.admission.waiting.stride import Stride
from router.core.replica_load import ReplicaLoad
from router.core.urgency import BATCH, CRITICAL, HIGH, LOW, NORMAL

NOBODY: Final[list[ClassQueue]] = []
_PATIENCE: Final = 0.1
# Of this number of places, starved tickets that are lost get at least one.
_LOST_TURN: Final = 10
# Maximum number of tickets that are examined if the first one must not go to the replica.
_FEW: Final = 64
# The largest cost of one request: a prompt of 131,072 tokens and the largest predicted output. The
# cost is an estimate that is not corrected when the request ends, so the sizes that a client states
# must not put its class far behind.
MOST_COST: Final = 262_144.0


class Choice:
    """Chooses tickets for one queue."""

    __slots__ = (
        "_batch_has_turns",
        "_class_queues",
        "_elsewhere",
        "_extras",
        "_instead",
        "_instead_level",
        "_levels",
        "_pool",
        "_rules",
        "_since_lost",
        "_starved_turns",
        "_starving",
        "_starving_since",
        "_turn",
        "_was_starving",
        "stride",
        "yielding",
    )

    def __init__(self, rules: Rules, pool: Pool, extras: Extras, elsewhere: Elsewhere) -> None:
        self._elsewhere = elsewhere
        self._rules = rules
        self._pool = pool
        self._extras = extras
        self.stride = Stride(rules)
        self.yielding = Yielding(elsewhere, rules, self.stride, pool)
        # By priority class: the class queue (of all lanes) that goes first.
        self._class_queues: list[ClassQueue | None] = [None] * CLASSES
        self._levels = [0.0] * CLASSES  # By priority class: the aged level of its oldest ticket.
        self._starving: ClassQueue | None = None  # The starved class queue whose turn it is.
        self._starving_since = INFINITY  # The arrival of the oldest ticket of `_starving`.
        # The class queue of batch to which only its own limits close the gate, and its level.
        self._instead: ClassQueue | None = None
        self._instead_level = INFINITY
        self._turn = 0  # The number of dispatches given to starved class queues.
        # By class: the value of `_turn` when a ticket of the class was last sent as starved.
        self._starved_turns = [0] * CLASSES
        # The number of tickets sent since one was sent that its line calls lost.
        self._since_lost = 0
        self._was_starving = False  # The last dispatch went to a starved class.
        # Class batch has turns at the replica although its own limits close the gate.
        self._batch_has_turns = False

    def gate(self, class_queue: ClassQueue, ticket: Ticket, now: float) -> int:
        """Return the class to which a replica's gate must be open for a ticket. Age may make this
        class more urgent than the ticket's own class, except for class batch (see above). A class
        queue is checked with the class of its oldest ticket."""
        level = self._rules.aged(float(class_queue.urgency), now - ticket.arrival)
        return _gate(class_queue.urgency, level, ticket.starved)

    def next_for(self, gate: CachedGate, lanes: dict[str, Lane], now: float) -> Ticket | None:
        """Return the next ticket to send to a replica; `None`: no ticket may be sent there."""
        refused = NOBODY
        while True:
            self._look(gate, lanes, refused, now)
            starving = self._starving
            class_queue = self._next_class_queue(now)
            if class_queue is None:
                return None
            ticket = self._ticket(class_queue, class_queue is starving, gate.place, now)
            if ticket is not None and not self._is_open(class_queue, ticket, gate, now):
                # The gate is open only because of the oldest ticket's age, or only to tickets that
                # are not lost. The chosen ticket must be one of those.
                ticket = self._let_in(class_queue, ticket, gate, now)
            if ticket is not None:
                self._serves(class_queue, ticket, now)
                return ticket
            # No examined ticket of this class queue may go to the replica: try the other queues.
            refused = [*refused, class_queue]

    def _is_open(
        self, class_queue: ClassQueue, ticket: Ticket, gate: CachedGate, now: float
    ) -> bool:
        """Whether the gate is open to the class of a ticket, whatever the ticket's age."""
        urgency = class_queue.urgency
        if urgency == BATCH and self._batch_has_turns and self._starving is not class_queue:
            return True  # The turn of a starved class is for its old tickets.
        if not gate.mask & (1 << urgency):
            return False
        return not (gate.is_kept_away(BATCH) and class_queue.line.is_lost(ticket, now))

    def _serves(self, class_queue: ClassQueue, ticket: Ticket, now: float) -> None:
        """Note that a ticket is sent."""
        urgency = class_queue.urgency
        self.stride.serves(urgency, cost(ticket), self._levels[urgency])
        class_queue.served_at = now
        self._since_lost += 1
        if class_queue.line.is_lost(ticket, now):
            class_queue.lost_at = now
            self._since_lost = 0

    def _look(
        self, gate: CachedGate, lanes: dict[str, Lane], refused: list[ClassQueue], now: float
    ) -> None:
        """Find the class queues that may send a ticket to a replica now, and the starved one among
        them whose turn it is."""
        self._class_queues = [None, None, None, None, None]
        self._starving = None
        self._starving_since = INFINITY
        self._instead = None
        self._instead_level = INFINITY
        if self.is_kept_for_urgent(gate, lanes, refused):
            return
        for lane in lanes.values():
            if not self._pool.serves(gate.place, lane.name):
                continue
            for class_queue in lane.class_queues:
                if class_queue is None or not class_queue.count:
                    continue
                if not refused or class_queue not in refused:
                    self._consider(gate, class_queue, now)
        self._look_at_batch(gate)

    def is_kept_for_urgent(
        self, gate: CachedGate, lanes: dict[str, Lane], refused: list[ClassQueue]
    ) -> bool:
        """Whether a critical or high request waits for the next free slot of a replica.

        An urgent request that may not be sent to the replica, because of its regions or of the
        routing policy, does not keep other requests away from it.
        """
        if not gate.facts.needs_slot():
            return False
        for lane in lanes.values():
            for class_queue in lane.class_queues[: HIGH + 1]:
                if class_queue is None or not class_queue.count or class_queue in refused:
                    continue
                if not gate.is_kept_away(class_queue.urgency) and self._pool.serves(
                    gate.place, lane.name
                ):
                    return True
        return False

    def _consider(self, gate: CachedGate, class_queue: ClassQueue, now: float) -> None:
        """Note whether a class queue may send a ticket to a replica now."""
        eldest = class_queue.eldest()
        if eldest is None:
            return
        urgency, class_queues, levels = class_queue.urgency, self._class_queues, self._levels
        level = self._rules.aged(float(urgency), now - eldest.arrival)
        aged = _gate(urgency, level, eldest.starved)
        eldest_goes = self._opens(gate, class_queue, eldest, aged, now)
        is_open = eldest_goes or self._opens_to_leader(gate, class_queue, now)
        if not is_open and urgency != BATCH:
            return
        if self._extras.all and not self._allows_first(class_queue, now):
            return
        if self._elsewhere.waits and self._is_left(gate, class_queue, eldest, level, now):
            return
        if not is_open:
            self._instead_level = min(self._instead_level, level)
            self._instead = _earlier(self._instead, class_queue, now)
            return
        other = class_queues[urgency]
        levels[urgency] = level if other is None else min(levels[urgency], level)
        class_queues[urgency] = _earlier(other, class_queue, now)
        if eldest.starved and eldest_goes and urgency != CRITICAL:
            self._starve(class_queue, eldest.arrival)

    def _allows_first(self, class_queue: ClassQueue, now: float) -> bool:
        """Whether the extras allow the first ticket of a class queue."""
        first = class_queue.line.first(now)
        return first is not None and self._extras.allow(first)

    def _is_left(
        self, gate: CachedGate, class_queue: ClassQueue, eldest: Ticket, level: float, now: float
    ) -> bool:
        """Whether a replica is left free for another router, and not for a class queue."""
        first = class_queue.line.first(now)
        return first is not None and self.yielding.holds(
            gate, first, level, now, is_starved=eldest.starved
        )

    def _starve(self, class_queue: ClassQueue, since: float) -> None:
        """Note a class queue whose oldest ticket, which arrived at the time `since`, is starved."""
        starving = self._starving
        if starving is None or self._has_turn(
            class_queue.urgency, starving.urgency, since < self._starving_since
        ):
            self._starving_since = since
            self._starving = class_queue

    def _has_turn(self, urgency: int, other: int, is_older: bool) -> bool:
        """Whether a starved class queue goes before one of class `other`.

        Starved classes are served by turn, not by due time. Otherwise a class whose tickets are
        always late would get every turn.
        """
        if urgency == other:
            return is_older
        return self._starved_turns[urgency] < self._starved_turns[other]

    def _opens_to_leader(self, gate: CachedGate, class_queue: ClassQueue, now: float) -> bool:
        """Whether the gate is open to the first ticket of a class queue, but not to the oldest one,
        because the oldest one is lost."""
        if not gate.is_kept_away(BATCH):
            return False
        leader = class_queue.line.first(now)
        return leader is not None and self._opens(
            gate, class_queue, leader, self.gate(class_queue, leader, now), now
        )

    def _look_at_batch(self, gate: CachedGate) -> None:
        """Decide whether class batch has a turn at a replica."""
        class_queues, levels, instead = self._class_queues, self._levels, self._instead
        self._batch_has_turns = False
        if class_queues[BATCH] is not None:
            self._batch_has_turns = self._batch_turn(gate, levels[BATCH])
        elif instead is not None:
            self._batch_has_turns = self._batch_turn(gate, self._instead_level)
            if self._batch_has_turns:
                class_queues[BATCH] = instead
                levels[BATCH] = self._instead_level

    def _batch_turn(self, gate: CachedGate, level: float) -> bool:
        """Whether class batch has a turn at a replica that its own limits may close to it.

        `level`: the aged level of the oldest batch ticket.
        """
        if gate.is_kept_away(BATCH):
            return False
        class_queues, classes = self._class_queues, self._rules.classes
        is_contested = class_queues[CRITICAL] is not None or class_queues[HIGH] is not None
        is_weighted = self._rules.mode == WEIGHTED
        most = HIGH
        if is_weighted or gate.is_kept:
            is_contested = any(class_queues[:BATCH])
            most = LOW
        if self._elsewhere.waits and not is_contested and is_weighted:
            # By weight over all routers; otherwise each of them would take the turn.
            is_contested = self.stride.is_behind(BATCH) and self.yielding.may_use(gate, most)
        is_due = is_contested or level < LOW + 0.5
        if not is_due:
            is_due = is_weighted and self.stride.is_behind(BATCH)
        aged = classes[int(level + 0.5)]
        return is_due and gate.takes_turn(classes[BATCH], aged, is_contested=is_contested)

    def _opens(
        self, gate: CachedGate, class_queue: ClassQueue, ticket: Ticket, aged: int, now: float
    ) -> bool:
        """Whether the gate is open to a ticket of a class queue. `aged`: the result of `gate`.

        The replica's facts must allow the aged class of the ticket. Age gives a ticket no tighter
        SLO, so the routing policy is asked about the ticket's own class. If the ticket is lost, the
        policy is asked about class batch: the ticket can only delay requests that are in time.

        If the policy keeps the class away from the replica, the tickets of the class wait for
        another replica. This does not apply to a starved ticket in two cases: it has waited for the
        starvation bound of its class, or no ticket of its class queue was sent for `_PATIENCE`
        times that bound. If the starved ticket is lost, the cases are: the last `_LOST_TURN` places
        were given to other tickets, or no lost ticket of its class queue was sent for the bound.
        """
        if not gate.starved_mask & (1 << aged):
            return False
        if not gate.kept_away:
            return True
        is_lost = class_queue.line.is_lost(ticket, now)
        if not gate.is_kept_away(BATCH if is_lost else class_queue.urgency):
            return True
        if not ticket.starved:
            return False
        bound_s = self._rules.classes[class_queue.urgency].bound_s
        if is_lost:
            return self._since_lost >= _LOST_TURN or now >= class_queue.lost_at + bound_s
        return now >= ticket.arrival + bound_s or now >= class_queue.served_at + _PATIENCE * bound_s

    def _next_class_queue(self, now: float) -> ClassQueue | None:
        mode = self._rules.mode
        critical, starving = self._class_queues[CRITICAL], self._starving
        if mode != TOGETHER and critical is not None:
            self._starving = None
            return critical
        if starving is not None and not self._was_starving:
            self._was_starving = True
            self._turn += 1
            self._starved_turns[starving.urgency] = self._turn
            return starving
        self._starving = None
        found: ClassQueue | None = None
        if mode == TOGETHER:
            for class_queue in self._class_queues:
                if class_queue is not None:
                    found = _earlier(found, class_queue, now)
        else:
            found = self._least(self._levels if mode == STRICT else self.stride.passes)
        if found is not None:  # If no class queue was found, no turn was used.
            self._was_starving = False
        return found

    def _least(self, measure: list[float]) -> ClassQueue | None:
        """Return the class queue, apart from critical, whose class has the lowest measure."""
        found: ClassQueue | None = None
        least = INFINITY
        for urgency in range(HIGH, CLASSES):
            class_queue = self._class_queues[urgency]
            if class_queue is not None and measure[urgency] < least:
                least = measure[urgency]
                found = class_queue
        return found

    def _ticket(
        self, class_queue: ClassQueue, is_starving: bool, place: ReplicaLoad, now: float
    ) -> Ticket | None:
        rules = self._rules
        if is_starving and rules.order.starves:
            starved = class_queue.starved_for(place, max(rules.affinity, 1))
            if starved is not None:
                return starved
        first = class_queue.line.first(now)
        if first is None:
            return None
        is_excluded = place in first.excluded
        if is_excluded:
            chosen = _allowed(class_queue.line.band(_FEW, now), place)
        elif class_queue.looking and rules.affinity:
            chosen = class_queue.short.best(class_queue.line, first, place, self._pool, rules, now)
        else:
            return first
        # Until now, the extras were asked for the first ticket only.
        if chosen is None or chosen is first or self._extras.allow(chosen):
            return chosen
        return None if is_excluded else first

    def _let_in(
        self, class_queue: ClassQueue, ticket: Ticket, gate: CachedGate, now: float
    ) -> Ticket | None:
        """Return the ticket if the gate is open to it, else the oldest ticket of its class queue if
        the gate is open to that ticket, else `None`."""
        if self._opens(gate, class_queue, ticket, self.gate(class_queue, ticket, now), now):
            return ticket
        eldest = class_queue.eldest()
        if eldest is None or gate.place in eldest.excluded:
            return None
        if not self._opens(gate, class_queue, eldest, self.gate(class_queue, eldest, now), now):
            return None
        return eldest if self._extras.allow(eldest) else None


def _gate(urgency: int, level: float, starved: bool) -> int:
    gate = int(level + 0.5)
    if starved:
        return min(gate, NORMAL)
    return BATCH if urgency == BATCH else gate


def _earlier(found: ClassQueue | None, other: ClassQueue, now: float) -> ClassQueue:
    """Return the class queue whose first ticket is earlier in the order; ties: `found`."""
    if found is None or other.line.rank(now) < found.line.rank(now):
        return other
    return found


def _allowed(band: list[Ticket], place: ReplicaLoad) -> Ticket | None:
    """Return the first ticket of `band` that may go to a replica; `None` if there is no such
    ticket."""
    for ticket in band:
        if not ticket.excluded or place not in ticket.excluded:
            return ticket
    return None


def cost(ticket: Ticket) -> float:
    """Return a ticket's cost for `Stride`. As in VTC, an output token costs two prompt tokens."""
    view = ticket.view
    found = 1.0 + view.prompt_tokens + 2.0 * max(view.output_tokens, 0)
    return min(MOST_COST, found)
