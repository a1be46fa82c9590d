"""Chooses the ticket that is sent to a free replica: first its class, then its lane, then the
ticket.

1. Find the class queues whose tickets may go to the replica now: the replica serves their lane, its
   facts allow the aged class of the oldest ticket, and the extras (`extra.py`) allow the first
   ticket. If the gate is open only because of the oldest ticket's age, only tickets of
   sufficient age are sent. While a critical or high ticket waits for a free slot of the replica,
   the replica gets no ticket. The routing policy may keep the class away (`_opens`).

   Class batch has limits of its own: the headroom (`headroom.py`), and few waiting requests at a
   replica. If only these limits close the gate, class batch still has a *turn* in these cases
   (`_batch_turn`), in which the limit of waiting requests is that of the other classes:
   - A ticket of another class may go to the replica, too. The replica gets one more request in both
     cases, so the headroom is not kept free. If the classes have no turns by weight, this applies
     only to a critical or high ticket, and to slots of the headroom.
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
        "_extras",
        "_levels",
        "_pool",
        "_rules",
        "_since_lost",
        "_starved_turns",
        "_starving",
        "_turn",
        "_was_starving",
        "stride",
    )

    def __init__(self, rules: Rules, pool: Pool, extras: Extras) -> None:
        self._rules = rules
        self._pool = pool
        self._extras = extras
        self.stride = Stride(rules)
        # By priority class: the class queue (of all lanes) that goes first.
        self._class_queues: list[ClassQueue | None] = [None] * CLASSES
        self._levels = [0.0] * CLASSES  # By priority class: the aged level of its oldest ticket.
        self._starving: ClassQueue | None = None  # The starved class queue whose turn it is.
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
            is_lost = ticket is not None and class_queue.line.is_lost(ticket, now)
            is_open = gate.mask & (1 << class_queue.urgency) != 0
            if is_lost and gate.is_kept_away(BATCH):
                is_open = False
            # The turn of a starved class is for its old tickets.
            if (
                class_queue.urgency == BATCH
                and self._batch_has_turns
                and self._starving is not class_queue
            ):
                is_open = True
            if ticket is not None and not is_open:
                # The gate is open only because of the oldest ticket's age, or only to tickets that
                # are not lost. The chosen ticket must be one of those.
                ticket = self._let_in(class_queue, ticket, gate, now)
                is_lost = ticket is not None and class_queue.line.is_lost(ticket, now)
            if ticket is not None:
                urgency = class_queue.urgency
                self.stride.serves(urgency, cost(ticket), self._levels[urgency])
                class_queue.served_at = now
                self._since_lost += 1
                if is_lost:
                    class_queue.lost_at = now
                    self._since_lost = 0
                return ticket
            # No examined ticket of this class queue may go to the replica: try the other queues.
            refused = [*refused, class_queue]

    def _look(
        self, gate: CachedGate, lanes: dict[str, Lane], refused: list[ClassQueue], now: float
    ) -> None:
        class_queues: list[ClassQueue | None] = [None, None, None, None, None]
        self._class_queues = class_queues
        levels = self._levels
        starving: ClassQueue | None = None
        since = INFINITY
        rules, extras = self._rules, self._extras
        needs_slot = gate.needs_slot()
        # The class queue of batch to which its own limits close the gate.
        instead: ClassQueue | None = None
        instead_level = INFINITY
        for lane in lanes.values():
            if not self._pool.serves(gate.place, lane.name):
                continue
            for class_queue in lane.class_queues:
                if (
                    class_queue is None
                    or not class_queue.count
                    or (refused and class_queue in refused)
                ):
                    continue
                eldest = class_queue.eldest()
                if eldest is None:
                    continue
                urgency = class_queue.urgency
                level = rules.aged(float(urgency), now - eldest.arrival)
                if needs_slot and urgency <= HIGH and not gate.is_kept_away(urgency):
                    self._class_queues = [None, None, None, None, None]
                    self._starving = None
                    return
                aged = _gate(urgency, level, eldest.starved)
                eldest_goes = self._opens(gate, class_queue, eldest, aged, now)
                is_open = eldest_goes or self._opens_to_leader(gate, class_queue, now)
                is_instead = urgency == BATCH and not is_open
                if not (is_open or is_instead):
                    continue
                if extras.all:
                    first = class_queue.line.first(now)
                    if first is None or not extras.allow(first):
                        continue
                if is_instead:
                    instead_level = min(instead_level, level)
                    if instead is None or class_queue.line.rank(now) < instead.line.rank(now):
                        instead = class_queue
                    continue
                other = class_queues[urgency]
                levels[urgency] = level if other is None else min(levels[urgency], level)
                if other is None or class_queue.line.rank(now) < other.line.rank(now):
                    class_queues[urgency] = class_queue
                if eldest.starved and eldest_goes and urgency != CRITICAL:
                    is_older = eldest.arrival < since
                    if starving is None or self._has_turn(urgency, starving.urgency, is_older):
                        since = eldest.arrival
                        starving = class_queue
        self._starving = starving
        self._look_at_batch(gate, instead, instead_level)

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

    def _look_at_batch(
        self, gate: CachedGate, instead: ClassQueue | None, instead_level: float
    ) -> None:
        """Decide whether class batch has a turn at a replica.

        `instead`: the class queue of batch to which only its own limits close the gate.
        """
        class_queues, levels = self._class_queues, self._levels
        self._batch_has_turns = False
        if class_queues[BATCH] is not None:
            self._batch_has_turns = self._batch_turn(gate, levels[BATCH])
        elif instead is not None:
            self._batch_has_turns = self._batch_turn(gate, instead_level)
            if self._batch_has_turns:
                class_queues[BATCH] = instead
                levels[BATCH] = instead_level

    def _batch_turn(self, gate: CachedGate, level: float) -> bool:
        """Whether class batch has a turn at a replica that its own limits may close to it.

        `level`: the aged level of the oldest batch ticket.
        """
        if gate.is_kept_away(BATCH):
            return False
        class_queues, classes = self._class_queues, self._rules.classes
        is_contested = class_queues[CRITICAL] is not None or class_queues[HIGH] is not None
        is_weighted = self._rules.mode == WEIGHTED
        if is_weighted or gate.is_kept:
            is_contested = any(class_queues[:BATCH])
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
        class_queues = self._class_queues
        mode = self._rules.mode
        if mode != TOGETHER and class_queues[CRITICAL] is not None:
            self._starving = None
            return class_queues[CRITICAL]
        starving = self._starving
        if starving is not None and not self._was_starving:
            self._was_starving = True
            self._turn += 1
            self._starved_turns[starving.urgency] = self._turn
            return starving
        found: ClassQueue | None = None
        if mode == TOGETHER:
            for class_queue in class_queues:
                if class_queue is not None and (
                    found is None or class_queue.line.rank(now) < found.line.rank(now)
                ):
                    found = class_queue
        else:
            least = INFINITY
            measure = self._levels if mode == STRICT else self.stride.passes
            for urgency in range(HIGH, CLASSES):
                class_queue = class_queues[urgency]
                if class_queue is not None and measure[urgency] < least:
                    least = measure[urgency]
                    found = class_queue
        if found is not None:  # If no class queue was found, no turn was used.
            self._was_starving = False
        self._starving = None
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
        if first.excluded and place in first.excluded:
            chosen = _allowed(class_queue.line.band(_FEW, now), place)
        elif class_queue.looking and rules.affinity:
            chosen = class_queue.short.best(class_queue.line, first, place, self._pool, rules, now)
        else:
            return first
        # Until now, the extras were asked for the first ticket only.
        if chosen is None or chosen is first or self._extras.allow(chosen):
            return chosen
        return None if first.excluded and place in first.excluded else first

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
