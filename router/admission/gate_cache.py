"""Who may enter a replica now: its gate's last answer, kept until its facts change.

All facts change by events that the queue is told of, so that an arrival need not look at every
replica: where no gate is closed to its class, it may go anywhere.

Must never: be asked between a change of the facts and `look`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from policies.queueing.ticket import CLASSES, INFINITY
from router.admission.aimd_limit import AimdLimit
from router.admission.gate import OBSTACLES, UNLIMITED, Facts, obstacle, open_to
from router.admission.pool import Pool
from router.admission.rules import ClassRules
from router.core.replica_load import ReplicaLoad
from router.core.urgency import NORMAL

ALL: Final = (1 << CLASSES) - 1
_ANY: Final = ""  # the lane of those that name no model: all that are fit
_SHUT_S: Final = 0.1  # without connections, after one that failed, ...
_SHUT_MOST_S: Final = 2.0  # ... at most, ...
_SHUT_FORGOTTEN_S: Final = 10.0  # ... until so long after the last one


class CachedGate:
    """Of one replica."""

    __slots__ = (
        "facts",
        "is_shut",
        "learned",
        "mask",
        "peak",
        "place",
        "poll_at",
        "poll_s",
        "polls",
        "shut_s",
        "shut_until",
        "used",
    )

    def __init__(self, place: ReplicaLoad) -> None:
        self.place = place
        self.facts = Facts()
        self.polls = -1  # heard of when it was last asked whether the engine tells anything
        self.mask = ALL  # the classes it is open to, as bits
        self.is_shut = False  # it could not be connected to: nothing goes there ...
        self.shut_until = -INFINITY  # ... until then, ...
        self.shut_s = 0.0  # ... for so long, doubled each time
        self.learned: AimdLimit | None = None  # of a replica that tells nothing
        self.poll_at = -INFINITY  # not before then another early poll is asked for, ...
        self.poll_s = 0.0  # ... which was so long after the one before; 0: there was none
        self.used = 0  # tokens of what was sent there and has not ended, as far as it is counted
        self.peak = 0  # the most there were when it took no more


class OpenGates:
    """Of some replicas those that were open to a class, as long as no gate has moved."""

    __slots__ = ("found", "moves", "places")

    def __init__(self) -> None:
        self.places: Sequence[ReplicaLoad] = ()
        self.moves = -1
        self.found: Sequence[ReplicaLoad] = ()


class GateCache:
    """Of all replicas that the queue has heard of."""

    __slots__ = (
        "_classes",
        "_closed",
        "_gates",
        "_moves",
        "_opened",
        "_places",
        "_pool",
        "_shut",
        "by_place",
    )

    def __init__(self, pool: Pool, classes: list[ClassRules]) -> None:
        self._pool = pool
        self._classes = classes
        self.by_place: dict[ReplicaLoad, CachedGate] = {}
        self._shut = 0  # replicas that are closed to all classes
        self._closed = [0] * CLASSES  # by class: how many others are closed to it
        self._moves = 0  # of any gate, open or shut
        self._opened = [OpenGates() for _ in range(CLASSES)]
        self._places: Sequence[ReplicaLoad] = ()  # those of the last `of_all`, ...
        self._gates: list[CachedGate] = []  # ... and their gates

    def adopt(self, classes: list[ClassRules]) -> None:
        self._classes = classes
        for gate in self.by_place.values():
            self.look(gate)

    def of(self, place: ReplicaLoad) -> CachedGate:
        gate = self.by_place.get(place)
        if gate is None:
            gate = self.by_place[place] = CachedGate(place)
            self.look(gate)
        return gate

    def of_all(self, places: Sequence[ReplicaLoad]) -> None:
        """There is a gate at each of them. `places` is not changed afterwards."""
        if places is not self._places:
            self._gates = [self.of(place) for place in places]
            self._places = places

    def look(self, gate: CachedGate) -> None:
        """The facts have changed: all leases that were granted are taken."""
        self._read(gate)
        self._judge(gate)

    def admits(self, place: ReplicaLoad, urgency: int) -> bool:
        """Whether one more of a class may go there now, whatever was known before. All leases that
        were granted are taken."""
        gate = self.of(place)
        self._read(gate)
        learned = gate.learned
        limit = 0 if learned is None else learned.allowed()
        return not gate.is_shut and not obstacle(gate.facts, self._classes[urgency], limit)

    def why_closed(self, place: ReplicaLoad, urgency: int) -> str:
        """What keeps a class out, for people; "": nothing. As `admits`."""
        gate = self.of(place)
        self._read(gate)
        learned = gate.learned
        limit = 0 if learned is None else learned.allowed()
        found = obstacle(gate.facts, self._classes[urgency], limit)
        return "connect" if gate.is_shut else OBSTACLES[found]

    def shut(self, gate: CachedGate, now: float) -> None:
        """The replica could not be connected to: nothing goes there for a moment, which doubles as
        long as that goes on."""
        if gate.is_shut:
            return  # all that were under way there fail together
        is_again = now - gate.shut_until < _SHUT_FORGOTTEN_S
        gate.shut_s = min(_SHUT_MOST_S, 2.0 * gate.shut_s) if is_again else _SHUT_S
        gate.shut_until = now + gate.shut_s
        gate.is_shut = True
        self.look(gate)

    def _read(self, gate: CachedGate) -> None:
        place = gate.place
        facts = gate.facts
        facts.read(place)
        if place.polls_heard != gate.polls:  # what follows changes with a poll only
            gate.polls = place.polls_heard
            if not self._pool.is_blind(place):
                gate.learned = None
            elif gate.learned is None:
                gate.learned = AimdLimit()
            slots = self._pool.slots(place)
            facts.is_guess = slots is None and gate.learned is None
            if slots is not None:
                facts.slots = float(slots)
            else:
                facts.slots = self._pool.guess(place) if facts.is_guess else UNLIMITED

    def grant(self, gate: CachedGate, tokens: int, streamed: bool) -> None:
        """One more was granted, and has no lease yet."""
        gate.facts.granted(gate.place, tokens, streamed)
        self._judge(gate)

    def _judge(self, gate: CachedGate) -> None:
        """Which classes it is open to."""
        learned = gate.learned
        limit = 0 if learned is None else learned.allowed()
        mask = 0 if gate.is_shut else open_to(gate.facts, self._classes, limit)
        if mask != gate.mask:
            self._moves += 1
            self._count(gate.mask, -1)
            gate.mask = mask
            self._count(mask, 1)

    def _count(self, mask: int, by: int) -> None:
        """One more replica, or one less, is open to these classes."""
        if not mask:
            self._shut += by
        elif mask != ALL:
            closed = self._closed
            for urgency in range(CLASSES):
                if not mask & (1 << urgency):
                    closed[urgency] = closed[urgency] + by  # `+=` on a list boxes both numbers

    def open_of(self, places: Sequence[ReplicaLoad], urgency: int) -> Sequence[ReplicaLoad]:
        """Those of `places` that are open to a class. One that nobody told of is taken to be."""
        closed = self._shut + self._closed[urgency]
        if not closed:
            return places
        if closed == len(self.by_place):
            return ()
        opened = self._opened[urgency]
        if opened.places is not places or opened.moves != self._moves:
            opened.places = places
            opened.moves = self._moves
            if places is self._places:
                bit = 1 << urgency
                opened.found = tuple([gate.place for gate in self._gates if gate.mask & bit])
            else:
                opened.found = tuple([place for place in places if self._is_open(place, urgency)])
        return opened.found

    def _is_open(self, place: ReplicaLoad, urgency: int) -> bool:
        gate = self.by_place.get(place)
        return gate is None or (gate.mask & (1 << urgency)) != 0

    def capacity(self) -> float:
        """Tokens that fit into all that are fit: their KV caches, or what they were seen to bear.
        Of whom neither is known is taken to be like the others; 0: of nobody."""
        known = 0.0
        count = 0
        gates = [self.by_place[p] for p in self._pool.eligible(_ANY) if p in self.by_place]
        for gate in gates:
            tokens = gate.place.kv_tokens
            if tokens is None or tokens <= 0:
                if not gate.mask & (1 << NORMAL):
                    gate.peak = max(gate.peak, gate.used)
                tokens = gate.peak
            if tokens > 0:
                known += tokens
                count += 1
        return known / count * len(gates) if count else 0.0

    def forget(self, place: ReplicaLoad) -> None:
        """It has left the fleet."""
        gate = self.by_place.pop(place, None)
        if gate is not None:
            self._places = ()
            self._gates = []
            self._moves += 1
            self._count(gate.mask, -1)
