"""Defines load: a share of the rate at which the fleet saturates without any cache hit.

Computed from the engines' timing model only. A request of L prompt and O output tokens takes this
much engine time, besides the constant part of each step:

    W = b*L + c*L^2 + O*(d1 + d2*(L + O/2))        seconds

(for the request's prefill, and for its share of O decode steps). A step takes at least d0. At most
B requests run at a time, because more do not fit into the KV cache (or max_num_seqs). An engine
that runs B requests at a time finishes one every (O*d0/B + W) seconds. A fleet of n engines with
evenly spread load (the result of least-load routing) therefore saturates at this rate:

    n / (O*d0/B + W)                               requests/s

W and O are means over the workload's requests. The warm saturation rate is the rate with perfect
reuse: every prompt token that an earlier request sent is found in a cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from router.lab.emulator.core.timing import Timing


@dataclass(frozen=True, slots=True)
class Engine:
    """Sizes and timing of one emulated engine."""

    timing: Timing
    kv_tokens: int
    max_num_seqs: int


def work_s(timing: Timing, prompt: float, output: float, cached: float = 0.0) -> float:
    """Engine time W in seconds of one request with `cached` prompt tokens in the cache."""
    return (
        timing.prefill_token_s * (prompt - cached)
        + timing.prefill_square_s * (prompt * prompt - cached * cached)
        + output * (timing.decode_sequence_s + timing.decode_context_s * (prompt + output / 2))
    )


def saturation(
    engine: Engine,
    engines: int,
    sizes: Iterable[tuple[float, int]],
    cached: Iterable[float] | None = None,
) -> float:
    """Requests/s at which `engines` engines saturate. `sizes`: (prompt tokens, output tokens) of
    each request.
    """
    sizes = list(sizes)
    hits = list(cached) if cached is not None else [0.0] * len(sizes)
    work = fmean(
        work_s(engine.timing, prompt, output, hit)
        for (prompt, output), hit in zip(sizes, hits, strict=True)
    )
    output = fmean(output for _, output in sizes)
    held = fmean(prompt + output for prompt, output in sizes)
    batch = max(1.0, min(engine.max_num_seqs, engine.kv_tokens / held))
    return engines / (output * engine.timing.decode_s / batch + work)


def cold_ttft_s(engine: Engine, sizes: Iterable[tuple[float, int]]) -> float:
    """Seconds to the first token of the workload's mean prompt on an idle engine without cached
    tokens.
    """
    return engine.timing.prefill_alone_s(round(fmean(prompt for prompt, _ in sizes)))
