"""Whether a replica takes one more: what waits there already, its KV cache, its pace.

The target is what an engine can use: three requests that wait, or one prefill batch of uncached
tokens, whichever admits more. More than that would wait in the engine's own queue, where nobody can
put it in another order; less would leave the engine without work.

Rules:
1. What waits is the lease's count: own attempts without a first content event, foreign ones that a
   poll counted, and those that were granted since and have no lease yet.
2. A whole (not streamed) attempt that no poll has taken over shows nothing, and the gauges that
   would show it lag. As far as the engine has free slots it is presumed to run, so the end of one
   lets the next one go without a poll. What the last poll saw waiting waits; one that it did not
   see waits again where more streams run by now than leave it a slot. The presumption ends where
   the unseen attempts have more than `UNSEEN` uncached prompt tokens, or twice as many as the
   engine was seen to prefill between two polls: they would wait for their prefill.
3. The batch rule holds only where the engine has a free slot: a request without one cannot be
   prefilled. A request that a poll saw waiting counts as its share of a batch, and none as less
   than `LEAST` tokens, so that requests without a known prompt do not come without end.
4. Where the number of slots is not known, it is guessed (`fleet/learned_capacity.py`), and twice as
   many requests as run for certain are taken to have one. So a cold engine of any size is filled by
   doubling, and a small one is never sent a burst that its gauges cannot show yet.
5. A replica on which nothing runs is never closed by its KV cache or its pace, which must be wrong.
   The KV cache usage is the replica's estimate (`core/kv_estimate.py`), not the polled figure: a
   poll's figure, believed until the next one, would leave an emptied engine idle.
6. Of an engine that tells nothing, attempts that show nothing until they are whole cannot be told
   from those that wait: they count against a learned limit instead (`aimd_limit.py`). A stream that
   has shown something does not count.
7. An unknown fact closes nothing.

Pure. Must never: count anything itself.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES
from router.admission.rules import ClassRules
from router.core.kv_estimate import kv_estimate
from router.core.replica_load import ReplicaLoad

LEAST: Final = 64.0  # tokens
UNSEEN: Final = 32_768  # tokens: four batches of 8192, vLLM 0.32's default on most GPUs
UNLIMITED: Final = float(1 << 60)

# Why a replica takes no more; 0: it does.
_LIMIT: Final = 1
_LEARNED: Final = 2
_WAITING: Final = 3
_PREFILL: Final = 4
_BUSY: Final = 5
_PACE: Final = 6
_KV_CACHE: Final = 7
OBSTACLES: Final = (
    "",
    "limit",  # as many requests as it may have
    "learned limit",  # as many as an engine that tells nothing was seen to take
    "waiting",  # as many wait there as may, and ...
    "prefill",  # ... a batch of prompt tokens, too
    "busy",  # it works, and the class goes to idle replicas only
    "pace",  # its streams are slower than the class allows
    "kv_cache",  # it is as full as the class allows
)


class Facts:
    """What a place said when it was last looked at: read once, judged as often as need be."""

    __slots__ = (
        "cadence_s",
        "foreign",
        "inflight",
        "is_guess",
        "kv_usage",
        "limit",
        "load",
        "reach_tokens",
        "seen",
        "slots",
        "taken",
        "tokens",
        "unseen",
        "unseen_tokens",
        "waiting",
    )

    def __init__(self) -> None:
        self.inflight = 0
        self.limit = 0
        self.waiting = 0
        self.load = 0
        self.tokens = 0
        self.foreign = 0
        self.unseen = 0  # of those that wait: whole attempts that no poll has taken over, ...
        self.unseen_tokens = 0
        self.reach_tokens = UNSEEN  # ... so many of which may be presumed to run
        self.taken = 0  # whole attempts that a poll has taken over ...
        self.seen = 0  # ... and those of them that the last poll saw waiting
        # Not read with the rest: only a poll changes them.
        self.slots: float = UNLIMITED
        self.is_guess = False  # nobody knows the slots
        self.cadence_s = 0.0
        self.kv_usage = -1.0  # estimated share of the KV cache; -1: unknown

    def read(self, place: ReplicaLoad) -> None:
        """An unknown fact becomes one that closes nothing."""
        self.inflight = place.inflight
        self.limit = place.limit
        self.waiting = place.waiting
        self.load = place.load
        self.tokens = place.pending_tokens
        self.foreign = place.foreign_waiting
        self.taken = place.whole_taken
        self.seen = place.whole_seen
        self.unseen = place.whole_fresh + place.whole_older
        if self.unseen:
            self.unseen_tokens = place.whole_fresh_tokens + place.whole_older_tokens
            self.reach_tokens = max(UNSEEN, 2 * place.polled_tokens)
        else:
            self.unseen_tokens = 0
            self.reach_tokens = UNSEEN
        kv_usage = place.kv_usage
        self.kv_usage = -1.0 if kv_usage is None else kv_usage
        cadence_s = place.cadence_s
        self.cadence_s = -1.0 if cadence_s is None else cadence_s

    def granted(self, place: ReplicaLoad, tokens: int, streamed: bool) -> None:
        """One more was granted at `place`, and has no lease yet."""
        self.inflight += 1
        self.waiting += 1
        self.load += 1
        self.tokens += tokens
        if not streamed:
            self.unseen += 1
            self.unseen_tokens += tokens
        if self.kv_usage >= 0.0:
            more = self.load - place.load
            self.kv_usage = kv_estimate(place, more, self.tokens - place.pending_tokens)


def open_to(facts: Facts, classes: list[ClassRules], learned: int) -> int:
    """The classes that may send one more there, as bits: 1 << class.

    `learned`: the learned limit of a replica that tells nothing; 0: it tells.
    """
    if _closes_to_all(facts, learned):
        return 0
    waiting, slots = _waiting(facts, learned)
    found = 0
    for urgency in range(CLASSES):
        if not _closes(facts, classes[urgency], waiting, slots):
            found |= 1 << urgency
    return found


def obstacle(facts: Facts, rules: ClassRules, learned: int) -> int:
    """The same of one class: 0, or the index in `OBSTACLES` of what closes it."""
    found = _closes_to_all(facts, learned)
    if not found:
        waiting, slots = _waiting(facts, learned)
        found = _closes(facts, rules, waiting, slots)
    return found


def _closes_to_all(facts: Facts, learned: int) -> int:
    """What closes the replica, whatever the class."""
    if facts.inflight >= facts.limit:
        return _LIMIT
    return _LEARNED if learned and facts.waiting - facts.foreign >= learned else 0


def _waiting(facts: Facts, learned: int) -> tuple[int, float]:
    """The requests that wait there, and the slots of the engine."""
    waiting = facts.waiting
    load = facts.load
    slots = facts.slots
    if learned:
        return waiting - facts.unseen - facts.seen, slots
    if facts.is_guess:
        slots = max(slots, 2.0 * (load - waiting))
    whole = facts.unseen + facts.taken
    if whole and facts.unseen_tokens < facts.reach_tokens:
        waiting -= facts.unseen + facts.seen
        waiting += max(facts.seen, min(whole, int(load - slots) - waiting))
    return waiting, slots


def _closes(facts: Facts, rules: ClassRules, waiting: int, slots: float) -> int:
    """What closes the replica to one class. `waiting`, `slots`: see `_waiting`."""
    load = facts.load
    if waiting >= rules.waiting:
        batch = rules.prefill_tokens
        if batch <= 0.0 or load >= slots:
            return _WAITING
        polled = facts.foreign + facts.seen
        tokens = float(facts.tokens) + polled * batch / rules.waiting
        if tokens >= batch or waiting * LEAST >= batch:
            return _PREFILL
    if load <= 0:
        return 0
    if rules.idle:
        return _BUSY
    if facts.cadence_s >= rules.tpot_s:
        return _PACE
    return 0 if facts.kv_usage < rules.kv_usage else _KV_CACHE
