"""What load means: a share of the rate at which the fleet would saturate without any cache hit.

From the engines' own timing model, and nothing else. A request of L prompt and O output tokens asks
of its engine, besides the constant part of each step,

    W = b*L + c*L^2 + O*(d1 + d2*(L + O/2))        seconds

(prefill, and its share of O decode steps). A step takes at least d0 whatever is in it, and at most
B requests are under way, because more do not fit into the KV cache (or max_num_seqs). An engine
that runs B requests at a time finishes one every (O*d0/B + W) seconds, so a fleet of n engines with
evenly spread load (which is what least-load routing comes to) saturates at

    n / (O*d0/B + W)                               requests/s

with W and O taken as means over the workload's requests. `warm` is the same with every prompt
token that was sent before taken from a cache: what perfect reuse could carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from router.emulator.core.timing import Timing


@dataclass(frozen=True, slots=True)
class Engine:
    """One emulated engine's sizes."""

    timing: Timing
    kv_tokens: int
    max_num_seqs: int


def work_s(timing: Timing, prompt: float, output: float, cached: float = 0.0) -> float:
    """W of one request that finds `cached` prompt tokens in the cache."""
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
    """Requests/s at which `engines` engines are full. `sizes`: (prompt, output) tokens each."""
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
    """First token of the workload's mean prompt on an idle engine with an empty cache."""
    return engine.timing.prefill_alone_s(round(fmean(prompt for prompt, _ in sizes)))
