"""Whether a replica takes one more: what waits there already, its KV cache, its pace.

The target is what an engine can use: three requests that wait, or one prefill batch of uncached
tokens, whichever admits more. More than that would wait in the engine's own queue, where nobody can
put it in another order; less would leave the engine without work.

Rules:
1. What waits is the lease's count: own attempts without a first content event, foreign ones that a
   poll counted, and `extra` ones that were granted and have no lease yet.
2. The batch rule holds only where the engine has a free slot, as far as it is known: what has none
   cannot be prefilled. A foreign request counts as its share of a batch, and none as less than
   `LEAST` tokens, so that requests without a known prompt do not come without end.
3. A replica on which nothing runs is never closed by its KV cache or its pace, which must be wrong.
   And where less is left than ran when its KV usage was told, those who went took their share of it
   with them: a poll's figure, believed until the next one, would leave the engine idle for as long.
4. Of an engine that tells nothing, attempts that show nothing until they are whole cannot be told
   from those that wait: they count against a learned limit instead (`learned.py`). A stream that
   has shown something counts for nobody.
5. An unknown fact closes nothing.

Pure. Must never: count anything itself.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES
from router.admission.place import Place
from router.admission.rules import ClassRules

LEAST: Final = 64.0  # tokens
UNLIMITED: Final = float(1 << 60)


class Facts:
    """What a place said when it was last looked at: read once, judged as often as need be."""

    __slots__ = (
        "foreign",
        "inflight",
        "kv_running",
        "kv_usage",
        "limit",
        "load",
        "slots",
        "tokens",
        "tpot_s",
        "waiting",
        "whole",
    )

    def __init__(self) -> None:
        self.inflight = 0
        self.limit = 0
        self.waiting = 0
        self.load = 0
        self.tokens = 0
        self.foreign = 0
        self.whole = 0  # of those that wait: they show nothing until they are whole
        self.slots: float = UNLIMITED  # not read with the rest: only a poll changes it
        self.kv_usage = 0.0
        self.kv_running = 0
        self.tpot_s = 0.0

    def read(self, place: Place) -> None:
        """An unknown fact becomes one that closes nothing."""
        self.inflight = place.inflight
        self.limit = place.limit
        self.waiting = place.waiting
        self.load = place.load
        self.tokens = place.pending_tokens
        self.foreign = place.foreign_waiting
        self.whole = place.whole_fresh + place.whole_older
        kv_usage = place.kv_usage
        self.kv_usage = -1.0 if kv_usage is None else kv_usage
        self.kv_running = place.kv_running
        tpot_s = place.tpot_s
        self.tpot_s = -1.0 if tpot_s is None else tpot_s


def open_to(
    facts: Facts, classes: list[ClassRules], extra: int, extra_tokens: int, learned: int
) -> int:
    """The classes that may send one more there, as bits: 1 << class.

    `extra`, `extra_tokens`: granted since, beyond what the facts say. `learned`: the learned limit
    of a replica that tells nothing; 0: it tells.
    """
    found = 0
    for urgency in range(CLASSES):
        if is_open(facts, classes[urgency], extra, extra_tokens, learned):
            found |= 1 << urgency
    return found


def is_open(facts: Facts, rules: ClassRules, extra: int, extra_tokens: int, learned: int) -> bool:
    """The same of one class."""
    if facts.inflight + extra >= facts.limit:
        return False
    waiting = facts.waiting + extra
    if learned:
        if waiting - facts.foreign >= learned:
            return False
        waiting -= facts.whole
    load = facts.load + extra
    if waiting >= rules.waiting:
        batch = rules.prefill_tokens
        if batch <= 0.0 or load >= facts.slots:
            return False
        tokens = float(facts.tokens + extra_tokens) + facts.foreign * batch / rules.waiting
        if tokens >= batch or waiting * LEAST >= batch:
            return False
    if load <= 0:
        return True
    if rules.idle or facts.tpot_s >= rules.tpot_s:
        return False
    kv_usage = facts.kv_usage
    if kv_usage < rules.kv_usage:
        return True
    ran = facts.kv_running
    return load < ran and kv_usage * load / ran < rules.kv_usage
