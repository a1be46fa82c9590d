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
4. Of an engine that tells nothing, attempts that show nothing until they are whole cannot be told
   from those that wait: they count against a learned limit instead (`learned.py`).
5. An unknown fact closes nothing.

Pure. Must never: count anything itself.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES
from router.admission.place import Place
from router.admission.rules import ClassRules

LEAST: Final = 64.0  # tokens


def open_to(
    place: Place, classes: list[ClassRules], extra: int, extra_tokens: int, learned: int
) -> int:
    """The classes that may send one more here, as bits: 1 << class.

    `learned`: the learned limit of a replica that tells nothing; 0: it tells.
    """
    inflight = place.inflight + extra
    if inflight >= place.limit:
        return 0
    waiting = place.waiting + extra
    if learned:
        if inflight >= learned:
            return 0
        waiting -= place.whole_fresh + place.whole_older
    load = place.load + extra
    kv_usage = place.kv_usage
    tpot_s = place.tpot_s
    slots = place.slots
    is_full = slots is not None and load >= slots
    tokens = float(place.pending_tokens + extra_tokens)
    foreign = float(place.foreign_waiting)
    found = 0
    for urgency in range(CLASSES):
        rules = classes[urgency]
        if waiting >= rules.waiting:
            batch = rules.prefill_tokens
            if is_full or batch <= 0.0:
                continue
            if tokens + foreign * batch / rules.waiting >= batch or waiting * LEAST >= batch:
                continue
        if load > 0:
            if rules.idle:
                continue
            if kv_usage is not None and kv_usage >= rules.kv_usage:
                continue
            if tpot_s is not None and tpot_s >= rules.tpot_s:
                continue
        found |= 1 << urgency
    return found
