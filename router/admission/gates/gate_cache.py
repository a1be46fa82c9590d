"""Caches which classes may send one more request to each replica, until the replica's facts change.

The gate of a replica is the decision which classes may send it one more request. Every change of a
replica's facts is reported to the queue, so a new request need not examine every replica. If no
gate is closed to the class of the request, all replicas are open to it. A change at one replica may
cause the routing policy to make a new plan. Then the gates of all replicas are computed again
(`look_if_replanned`).

Must never: be read between a change of facts and the call of `look`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from policies.queueing.ticket import CLASSES, INFINITY
from router.admission.gates.aimd_limit import AimdLimit
from router.admission.gates.gate import (
    NO_LIMIT,
    OBSTACLES,
    UNLIMITED,
    Facts,
    obstacle,
    open_to,
    takes_turn,
)
from router.admission.gates.peer_load import PeerLoad
from router.admission.headroom import Headroom
from router.admission.pool import Pool
from router.admission.rules import ClassRules, Rules
from router.core.replica_load import ReplicaLoad
from router.core.urgency import BATCH

ALL: Final = (1 << CLASSES) - 1
# The pause after the first failed connection; each further failure doubles the pause.
_SHUT_S: Final = 0.1
_SHUT_MOST_S: Final = 2.0  # The longest pause after failed connections, in seconds.
# After this many seconds without a failed connection, the pause is `_SHUT_S` again.
_SHUT_FORGOTTEN_S: Final = 10.0


class CachedGate:
    """The gate of one replica: which classes may send it one more request, as last computed."""

    __slots__ = (
        "facts",
        "has_left",
        "is_kept",
        "is_shut",
        "kept_away",
        "kept_load",
        "kept_until",
        "learned",
        "mask",
        "place",
        "poll_at",
        "poll_s",
        "polls",
        "shut_s",
        "shut_until",
        "starved_mask",
        "waits_again_at",
    )

    def __init__(self, place: ReplicaLoad) -> None:
        self.place = place
        self.facts = Facts()
        # Whether a slot is free and only the headroom (`headroom.py`) closes the gate to class
        # batch.
        self.is_kept = False
        # The value of `polls_heard` when the number of slots and `learned` were last updated.
        self.polls = -1
        self.mask = ALL  # The classes to which the gate is open, as bits.
        # The classes to which the gate is open if the routing policy is ignored, as bits. This is
        # used for requests that have waited too long.
        self.starved_mask = ALL
        # The classes that the routing policy keeps away from the replica, as bits.
        self.kept_away = 0
        self.is_shut = False  # A connection failed, so no request is sent before `shut_until`.
        self.shut_until = -INFINITY
        self.shut_s = 0.0  # The length of the current pause, in seconds.
        # Until when the replica was last left free for another router, and its load then; see
        # `elsewhere.py`.
        self.kept_until = -INFINITY
        self.kept_load = 0
        # The last free slot was left to another router because of a starved class, so the next slot
        # is not.
        self.has_left = False
        self.waits_again_at = -INFINITY  # When it may be left free again.
        self.learned: AimdLimit | None = None  # The AIMD limit of a replica without metrics.
        self.poll_at = -INFINITY  # When the next early poll may be requested.
        self.poll_s = 0.0  # The interval of early polls; 0: none was requested yet.

    def is_kept_away(self, urgency: int) -> bool:
        """Whether the routing policy closes the gate to a class."""
        return bool(self.kept_away & (1 << urgency))

    def takes_turn(self, rules: ClassRules, aged: ClassRules, *, is_contested: bool) -> bool:
        """Whether the replica may take a request of class batch whose turn it is; see
        `gate.takes_turn`."""
        return not self.is_shut and takes_turn(self.facts, rules, aged, is_contested=is_contested)


class OpenGates:
    """A cached result: the replicas of a list that are open to a class.

    The cached result is valid until the answer of any gate changes.
    """

    __slots__ = ("found", "moves", "places")

    def __init__(self) -> None:
        self.places: Sequence[ReplicaLoad] = ()
        self.moves = -1
        self.found: Sequence[ReplicaLoad] = ()


class GateCache:
    """The gates of all replicas that one queue uses."""

    __slots__ = (
        "_closed",
        "_gates",
        "_headroom",
        "_moves",
        "_opened",
        "_places",
        "_plan_changes",
        "_pool",
        "_rules",
        "_shut",
        "by_place",
        "peers",
    )

    def __init__(self, pool: Pool, rules: Rules, headroom: Headroom) -> None:
        """`headroom`: after it has changed, a gate changes when `look` is next called for it. This
        happens at every end of a request at the replica."""
        self._pool = pool
        self._headroom = headroom
        self._rules = rules
        self.peers = PeerLoad()
        self.by_place: dict[ReplicaLoad, CachedGate] = {}
        self._shut = 0  # Replicas that are closed to all classes.
        # By class: the replicas closed to the class, without those closed to all classes.
        self._closed = [0] * CLASSES
        self._moves = 0  # How often a gate was opened or closed to a class.
        self._opened = [OpenGates() for _ in range(CLASSES)]
        # The replicas passed to the last call of `of_all`.
        self._places: Sequence[ReplicaLoad] = ()
        self._gates: list[CachedGate] = []  # The gates of the replicas in `_places`.
        # The value of `Pool.plan_changes` when all gates were last read.
        self._plan_changes = pool.plan_changes

    def look_at_all(self) -> None:
        """Read the facts of all replicas again, because they or the rules have changed."""
        for gate in self.by_place.values():
            self.look(gate)

    def of(self, place: ReplicaLoad) -> CachedGate:
        gate = self.by_place.get(place)
        if gate is None:
            gate = self.by_place[place] = CachedGate(place)
            self.look(gate)
        return gate

    def of_all(self, places: Sequence[ReplicaLoad]) -> None:
        """Create a gate for each replica that has none. The caller must not change `places`."""
        if places is not self._places:
            self._gates = [self.of(place) for place in places]
            self._places = places

    def look(self, gate: CachedGate) -> None:
        """Read the facts of a replica again, because they have changed.

        Call `look` only after the leases of all granted requests were taken.
        """
        self._read(gate)
        self._judge(gate)

    def look_if_replanned(self) -> bool:
        """Read all gates again if the routing policy has a new plan. Returns whether it has.

        Call this after `look`, which may cause a new plan.
        """
        changes = self._pool.plan_changes
        if changes == self._plan_changes:
            return False
        self._plan_changes = changes
        self.look_at_all()
        return True

    def admits(self, place: ReplicaLoad, urgency: int) -> bool:
        """Whether a replica takes one more request of a class, by its current facts.

        The cached answer is not used. Call `admits` only after the leases of all granted requests
        were taken.
        """
        gate = self.of(place)
        self._read(gate)
        if gate.is_shut or obstacle(gate.facts, self._rules.classes[urgency]):
            return False
        return not self._pool.closed_to(place) & (1 << urgency)

    def why_closed(self, place: ReplicaLoad, urgency: int) -> str:
        """Return why a replica is closed to a class, as text for people; "": the replica is open to
        the class.

        The current facts are used, as in `admits`.
        """
        gate = self.of(place)
        self._read(gate)
        found = obstacle(gate.facts, self._rules.classes[urgency])
        if gate.is_shut:
            return "connect"
        if not found and self._pool.closed_to(place) & (1 << urgency):
            return "policy"
        return OBSTACLES[found]

    def shut(self, gate: CachedGate, now: float) -> None:
        """Close the gate for a pause, because a connection failed. Each further failure doubles the
        pause."""
        if gate.is_shut:
            return  # Several connections may fail at the same time; all count as one failure.
        is_again = now - gate.shut_until < _SHUT_FORGOTTEN_S
        gate.shut_s = min(_SHUT_MOST_S, 2.0 * gate.shut_s) if is_again else _SHUT_S
        gate.shut_until = now + gate.shut_s
        gate.is_shut = True
        self.look(gate)

    def _read(self, gate: CachedGate) -> None:
        place = gate.place
        facts = gate.facts
        facts.read(place)
        if place.polls_heard != gate.polls:  # Only a poll changes the facts that are read below.
            gate.polls = place.polls_heard
            self.peers.polled(place.inflight, place.foreign_load)
            if not self._pool.is_blind(place):
                gate.learned = None
            elif gate.learned is None:
                gate.learned = AimdLimit()
            found = self._pool.slots(place)
            facts.is_guess = found is None and gate.learned is None
            if found is not None:
                facts.slots = float(found)
            else:
                facts.slots = self._pool.guess(place) if facts.is_guess else UNLIMITED
        learned = gate.learned
        facts.learned = 0 if learned is None else learned.allowed()
        facts.most_shared = NO_LIMIT
        if facts.is_guess or facts.slots >= UNLIMITED:
            facts.most_batch = facts.most_urgent = NO_LIMIT
        else:
            slots = int(facts.slots + 0.5)
            share = self._rules.classes[BATCH].slots
            if share < 1.0:
                facts.most_shared = max(1, int(share * slots + 0.5))
            facts.most_urgent = self._headroom.most_urgent(slots)
            facts.most_batch = self._headroom.most_batch(slots)

    def grant(self, gate: CachedGate, tokens: int, streamed: bool) -> None:
        """Count a request that was granted at this replica and has no lease yet."""
        gate.facts.granted(gate.place, tokens, streamed)
        self._judge(gate)

    def _judge(self, gate: CachedGate) -> None:
        """Decide which classes the gate is open to, and count the change."""
        facts = gate.facts
        mask = 0 if gate.is_shut else open_to(facts, self._rules.classes)
        gate.is_kept = False
        if facts.most_batch <= facts.load < facts.slots and not gate.is_shut:
            most, facts.most_batch = facts.most_batch, NO_LIMIT
            gate.is_kept = not obstacle(facts, self._rules.classes[BATCH])
            facts.most_batch = most
        gate.starved_mask = mask
        gate.kept_away = 0 if gate.is_shut else self._pool.closed_to(gate.place)
        mask &= ~gate.kept_away
        if gate.kept_away & (1 << BATCH):
            gate.is_kept = False
        if mask != gate.mask:
            self._moves += 1
            self._count(gate.mask, -1)
            gate.mask = mask
            self._count(mask, 1)

    def _count(self, mask: int, by: int) -> None:
        """Count one more replica (`by` 1), or one less (-1), that is open to these classes."""
        if not mask:
            self._shut += by
        elif mask != ALL:
            closed = self._closed
            for urgency in range(CLASSES):
                if not mask & (1 << urgency):
                    # Compiled `+=` is slower: it boxes both numbers.
                    closed[urgency] = closed[urgency] + by

    def open_of(self, places: Sequence[ReplicaLoad], urgency: int) -> Sequence[ReplicaLoad]:
        """Return the replicas of `places` that are open to a class or have no gate yet."""
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
                opened.found = tuple([place for place in places if self.is_open(place, urgency)])
        return opened.found

    def is_open(self, place: ReplicaLoad, urgency: int) -> bool:
        """Whether a replica is open to a class, or has no gate yet."""
        gate = self.by_place.get(place)
        return gate is None or (gate.mask & (1 << urgency)) != 0

    def forget(self, place: ReplicaLoad) -> CachedGate | None:
        """Drop and return the gate of a replica that has left the queue's part of the fleet."""
        gate = self.by_place.pop(place, None)
        if gate is not None:
            self._places = ()
            self._gates = []
            self._moves += 1
            self._count(gate.mask, -1)
        return gate

    def receive(self, gate: CachedGate) -> None:
        """Use a gate that `forget` of another queue has returned.

        What the gate knows about its replica is kept. Its counts of requests begin at zero, because
        the requests at the replica are counted again when this queue takes them over.
        """
        self.forget(gate.place)
        gate.facts.batch = 0
        gate.polls = -1
        gate.mask = ALL
        self.by_place[gate.place] = gate
        self._moves += 1
        self.look(gate)
