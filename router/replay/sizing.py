"""How many replicas a traffic needs, roughly, where nobody says: an estimate to start from.

From the engine model alone, as if nothing were ever cached and load were even. A request of L
prompt and O output tokens asks of its engine its prefill and its share of O decode steps,

    W = b*L + c*L^2 + O*(d0/B + d1 + d2*(L + O/2))        seconds

where B requests run together: as many as fit into the KV cache, are allowed, and still leave each
its time per token (B from mean lengths, the rest request by request, as long prompts count square).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import ceil, inf

from router.emulator.core.timing import Timing
from router.simulator.traffic import Arrival

BUSY = 0.7  # share of its capacity that the estimated fleet is to be used
REPLICAS_MAX = 1000
_LOOKED_AT = 50_000  # requests


def replicas_for(
    traffic: Iterable[Arrival],
    timing: Timing,
    *,
    rate: float,
    kv_tokens: int,
    max_num_seqs: int,
    tpot_s: float,
) -> int:
    """Replicas for `rate` requests/s such as those of `traffic`; at least 1, at most 1,000."""
    count = prompts = squares = outputs = contexts = 0
    for arrival in islice(traffic, _LOOKED_AT):
        prompt, output = arrival.prompt_tokens, arrival.output_tokens
        count += 1
        prompts += prompt
        squares += prompt * prompt
        outputs += output
        contexts += output * (2 * prompt + output)  # twice what its steps attend to together
    if not count:
        return 1
    context = contexts / (2 * outputs) if outputs else 0.0
    each = timing.decode_sequence_s + timing.decode_context_s * context
    in_time = (tpot_s - timing.decode_s) / each if each > 0.0 else inf
    batch = max(1.0, min(max_num_seqs, kv_tokens * count / (prompts + outputs), in_time))
    work_s = (
        timing.prefill_token_s * prompts
        + timing.prefill_square_s * squares
        + outputs * (timing.decode_s / batch + each)
    )
    return min(max(1, ceil(rate * work_s / count / BUSY)), REPLICAS_MAX)
