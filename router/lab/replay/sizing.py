"""Estimates the number of replicas for the traffic, as a default size of the fleet.

The estimate uses the engine model only. It assumes no cache hits and an even load. A request with L
prompt tokens and O output tokens needs the time of its prefill and its share of O decode steps:

    W = b*L + c*L^2 + O*(d0/B + d1 + d2*(L + O/2))        seconds

B is the number of requests that run together. It is limited by the KV cache, by the maximum number
of sequences, and by the time per token of the SLO. B uses mean lengths. The other terms are summed
per request, because the prefill is quadratic in the prompt length. The coefficients b, c, d0, d1
and d2 are those of the engine model (`emulator/core/timing.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import ceil, inf

from router.lab.emulator.core.timing import Timing
from router.lab.simulator.traffic import Arrival

UTILISATION = 0.7  # the target utilisation of the estimated fleet
REPLICAS_MAX = 1000
_SAMPLE = 50_000  # the number of requests that are used for the estimate


def replicas_for(
    traffic: Iterable[Arrival],
    timing: Timing,
    *,
    rate: float,
    kv_tokens: int,
    max_num_seqs: int,
    tpot_s: float,
) -> int:
    """Return the number of replicas for `rate` requests/s, from 1 to `REPLICAS_MAX`.

    The requests have the lengths of those in `traffic`. `tpot_s`: the SLO for the time per output
    token, in seconds.
    """
    count = prompts = squares = outputs = contexts = 0
    for arrival in islice(traffic, _SAMPLE):
        prompt, output = arrival.prompt_tokens, arrival.output_tokens
        count += 1
        prompts += prompt
        squares += prompt * prompt
        outputs += output
        # Twice the sum of the request's context over all its decode steps.
        contexts += output * (2 * prompt + output)
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
    return min(max(1, ceil(rate * work_s / count / UTILISATION)), REPLICAS_MAX)
