"""Decides whether a replica takes one more request, by its waiting requests, KV cache and speed.

The target is three waiting requests, or one prefill batch of uncached tokens, whichever admits
more. With more requests, some would wait in the engine's own queue, where the router cannot reorder
them. With fewer, the engine could run out of work.

Rules:
1. Three numbers are added to get the number of waiting requests: this router's attempts without a
   first content event, other clients' waiting requests at the last poll, and granted requests that
   have no lease yet.
2. An attempt that is not streamed ("whole") shows nothing before its end, and the engine's gauges
   lag. Until a poll has counted the attempt, it is presumed to run if the engine has a free slot.
   So the end of one whole attempt admits the next one without a poll. An attempt that was waiting
   at the last poll counts as waiting. An attempt that was running then counts as waiting again if
   more streams run now and leave no slot for this attempt. Attempts that no poll has counted are
   not presumed to run if they have too many uncached prompt tokens, because they would wait for
   their prefill. The limit of these tokens is `UNSEEN`, or twice the tokens that the engine
   prefilled between two polls if that is more.
3. The target of one prefill batch applies only while the engine has a free slot, because a request
   without a slot cannot be prefilled. A request that was waiting at the last poll counts as one
   batch divided by the limit of waiting requests. Every request counts as at least `LEAST` tokens,
   so that the number of requests without a known prompt is bounded.
4. If the number of slots is not known, the number is guessed (`fleet/learned_capacity.py`). The
   guess is at least twice the number of requests that certainly run. So an engine of any size is
   filled by doubling the number of requests, and a small engine never gets a burst that its gauges
   cannot show yet.
5. If a replica has no load, neither its KV cache usage nor its speed closes the gate, because these
   values must be outdated. For the KV cache usage, an estimate is used (`core/kv_estimate.py`),
   because the last polled value could keep an engine idle that has become empty since the poll.
6. If an engine reports no metrics, the router cannot see whether a whole attempt runs or waits.
   Then all attempts that have shown no content count against a learned limit (`aimd_limit.py`). A
   stream whose first content has arrived does not count.
7. If the number of slots is known, the headroom (`headroom.py`) limits the load at which batch and
   urgent requests are sent: batch leaves slots free, and urgent requests need a free slot.
8. `classes.batch.slots` limits the slots that class batch uses, if the number of slots is known.
9. The more requests run at an engine, the more of them end in one step, and the more must wait for
   their first token to keep as many running. So the limit of waiting requests of class batch is one
   for each `RUNNING_EACH` running requests, but no more than the limit of the other classes, and no
   less than its own.
10. Requests of clients that tell this router nothing do not close the gate to urgent requests. An
    urgent request that waits in the router does not overtake the requests at the engine, and a slot
    that becomes free is taken by another client before this router sees it in the metrics. Other
    routers that tell of their requests leave such a slot free (`elsewhere.py`), so their requests
    count as this router's own.
11. An unknown fact never closes the gate.

The functions are pure. Must never: count requests itself.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES
from router.admission.rules import ClassRules
from router.core.kv_estimate import kv_estimate
from router.core.replica_load import ReplicaLoad

LEAST: Final = 64.0  # Minimum tokens that a request counts as.
# Attempts that no poll has counted are presumed to run while they have fewer uncached prompt
# tokens. The number is four batches of 8192 tokens, the default of vLLM 0.32 on most GPUs.
UNSEEN: Final = 32_768
# In `hedgerow bench priority`, engines with about 200 running requests lose 9 % of their throughput
# if one batch request may wait, and 3 % if three may wait.
RUNNING_EACH: Final = 48
UNLIMITED: Final = float(1 << 60)
NO_LIMIT: Final = 1 << 60

# Reasons why a replica takes no more requests, as indexes into `OBSTACLES`. Index 0 means that the
# replica takes one more request.
_LIMIT: Final = 1
_LEARNED: Final = 2
_WAITING: Final = 3
_PREFILL: Final = 4
_BUSY: Final = 5
_PACE: Final = 6
_KV_CACHE: Final = 7
_SLOTS: Final = 8
_SHARE: Final = 9
OBSTACLES: Final = (
    "",
    "limit",  # The configured limit of attempts is reached.
    "learned limit",  # The AIMD limit of a replica without metrics is reached.
    "waiting",  # The limit of waiting requests is reached, and no slot is free.
    # The limit of waiting requests is reached, and one batch of prompt tokens waits for its
    # prefill.
    "prefill",
    "busy",  # The replica has load, and the class may use idle replicas only.
    "pace",  # The replica's streams are slower than the class allows.
    "kv_cache",  # The replica's KV cache usage has reached the limit of the class.
    "slots",  # The replica has no free slot for the class.
    "share",  # Class batch uses its maximum share of the replica's slots.
)


class Facts:
    """A copy of a replica's facts, from which the gate is computed for every class."""

    __slots__ = (
        "batch",
        "cadence_s",
        "foreign",
        "foreign_load",
        "inflight",
        "is_guess",
        "kv_usage",
        "learned",
        "limit",
        "load",
        "most_batch",
        "most_shared",
        "most_urgent",
        "reach_tokens",
        "seen",
        "slots",
        "taken",
        "tokens",
        "unseen",
        "unseen_tokens",
        "untold",
        "untold_load",
        "waiting",
    )

    def __init__(self) -> None:
        self.inflight = 0
        self.limit = 0
        self.waiting = 0
        self.load = 0
        self.tokens = 0
        self.foreign = 0
        self.foreign_load = 0
        # The part of `foreign` and of `foreign_load` of which no other router has told.
        self.untold = self.untold_load = 0
        self.unseen = 0  # Attempts that are not streamed and that no poll has counted yet.
        self.unseen_tokens = 0  # The uncached prompt tokens of the attempts in `unseen`.
        # If `unseen_tokens` is lower, the attempts in `unseen` are presumed to run.
        self.reach_tokens = UNSEEN
        self.taken = 0  # Attempts that are not streamed and that a poll has counted.
        self.seen = 0  # Attempts in `taken` that were waiting at the engine at the last poll.
        # `GateCache` sets the next fields. The number of slots changes only at a poll.
        self.learned = 0  # The AIMD limit of a replica without metrics; 0: it reports metrics.
        self.slots: float = UNLIMITED
        self.is_guess = False  # The number of slots is guessed.
        # From these loads on, the replica takes no more requests of class batch, and of the classes
        # critical and high. `headroom.py` determines both.
        self.most_batch = NO_LIMIT
        self.most_urgent = NO_LIMIT
        self.batch = 0  # Requests of class batch that the queue has sent to the replica.
        self.most_shared = NO_LIMIT  # The maximum of `batch`.
        self.cadence_s = 0.0
        self.kv_usage = -1.0  # Estimated share of the KV cache in use, 0 to 1; -1: unknown.

    def read(self, place: ReplicaLoad) -> None:
        """Copy the facts of a replica. An unknown fact gets a value that never closes the gate."""
        self.inflight = place.inflight
        self.limit = place.limit
        self.waiting = place.waiting
        self.load = place.load
        self.tokens = place.pending_tokens
        self.foreign = place.foreign_waiting
        self.foreign_load = place.foreign_load
        self.untold = place.foreign_waiting - place.shared_waiting
        self.untold_load = place.foreign_load - place.shared_load
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

    def is_full(self) -> bool:
        """Whether the number of slots is known, and none is free."""
        return not self.is_guess and self.load >= self.slots

    def needs_slot(self) -> bool:
        """Whether urgent requests must wait until a request of a router that is known frees a
        slot."""
        return self.load - self.untold_load >= self.most_urgent

    def has_one_slot(self) -> bool:
        """Whether the number of slots is known, and at most one is free."""
        return not self.is_guess and self.load + 1 >= self.slots

    def granted(self, place: ReplicaLoad, tokens: int, streamed: bool) -> None:
        """Count a request that was granted at `place` and has no lease yet."""
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


def open_to(facts: Facts, classes: list[ClassRules]) -> int:
    """Return the classes that may send one more request to a replica, as bits: 1 << class."""
    if _closes_to_all(facts):
        return 0
    waiting, slots = _waiting(facts)
    found = 0
    for urgency in range(CLASSES):
        if not _closes(facts, classes[urgency], waiting, slots):
            found |= 1 << urgency
    return found


def obstacle(facts: Facts, rules: ClassRules) -> int:
    """Return why a replica is closed to one class: an index into `OBSTACLES`; 0: it is open."""
    found = _closes_to_all(facts)
    if not found:
        waiting, slots = _waiting(facts)
        found = _closes(facts, rules, waiting, slots)
    return found


def takes_turn(facts: Facts, rules: ClassRules, aged: ClassRules, *, is_contested: bool) -> bool:
    """Whether a replica takes a request of class batch whose turn it is.

    Fewer requests than `rules.turn_waiting` wait at the replica, which is the limit of the other
    classes. So class batch has its share of an engine at which requests of other classes wait at
    all times, but never sends many requests at once. `rules`: those of class batch. `aged`: those
    of the class that the age of the oldest batch request has reached. They limit the KV cache usage
    and the time per token. `is_contested`: another request may go to the replica, so it gets one
    more request in both cases, and the headroom is not kept free.
    """
    if _closes_to_all(facts):
        return False
    waiting, _ = _waiting(facts)
    return (
        waiting < rules.turn_waiting
        and (is_contested or facts.load < facts.most_batch)
        and facts.batch < facts.most_shared
        and not _closes_by_state(facts, aged)
    )


def _closes_to_all(facts: Facts) -> int:
    """Return why the replica is closed to all classes; 0: the replica is open to some class."""
    if facts.inflight >= facts.limit:
        return _LIMIT
    learned = facts.learned
    return _LEARNED if learned and facts.waiting - facts.foreign >= learned else 0


def _waiting(facts: Facts) -> tuple[int, float]:
    """Return the number of requests that wait at the replica, and the slots of its engine."""
    waiting = facts.waiting
    load = facts.load
    slots = facts.slots
    if facts.learned:
        return waiting - facts.unseen - facts.seen, slots
    if facts.is_guess:
        slots = max(slots, 2.0 * (load - waiting))
    whole = facts.unseen + facts.taken
    if whole and facts.unseen_tokens < facts.reach_tokens:
        waiting -= facts.unseen + facts.seen
        waiting += max(facts.seen, min(whole, int(load - slots) - waiting))
    return waiting, slots


def _closes(facts: Facts, rules: ClassRules, waiting: int, slots: float) -> int:
    """Return why the replica is closed to one class; 0: the replica is open to the class.

    `waiting`, `slots`: the results of `_waiting`.
    """
    load = facts.load
    most = rules.waiting
    if rules.is_urgent:
        if facts.needs_slot():
            return _SLOTS
        waiting -= facts.untold
    elif rules.is_batch:
        most = _batch_waiting(rules, load - waiting)
        if load >= facts.most_batch:
            return _SLOTS
        if facts.batch >= facts.most_shared:
            return _SHARE
    if waiting >= most:
        batch = rules.prefill_tokens
        if batch <= 0.0 or load >= slots:
            return _WAITING
        polled = facts.untold + facts.seen
        tokens = float(facts.tokens) + polled * batch / rules.waiting
        if tokens >= batch or waiting * LEAST >= batch:
            return _PREFILL
    return _closes_by_state(facts, rules)


def _batch_waiting(rules: ClassRules, running: int) -> int:
    """Return the limit of waiting requests of class batch if `running` requests run."""
    return max(rules.waiting, min(rules.turn_waiting, running // RUNNING_EACH))


def _closes_by_state(facts: Facts, rules: ClassRules) -> int:
    """Return why the replica is closed to one class, except for its limits of waiting requests, of
    prompt tokens and of slots; 0: the replica is open to the class."""
    if facts.load <= 0:
        return 0
    if rules.idle:
        return _BUSY
    if facts.cadence_s >= rules.tpot_s:
        return _PACE
    return 0 if facts.kv_usage < rules.kv_usage else _KV_CACHE
