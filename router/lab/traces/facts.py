"""Computes statistics of the traffic without a simulation, in one pass and in bounded memory.

Reuse is the hit rate of an infinite cache that all replicas share. The hash of a block depends on
all blocks before it. So a block was seen before only if its whole prefix was seen before. Therefore
the number of hits is the number of all blocks minus the number of distinct blocks. Up to `EXACT`
distinct blocks are counted exactly. Beyond that they are sampled by hash, and the estimate of their
number has a standard error of about 0.1 % (Wegman's adaptive sampling; Flajolet, "On adaptive
sampling", Computing 43, 1990).

The hit rate refers to ALL blocks of the prompts, including partial blocks: a prompt has ceil(prompt
/ block_tokens) blocks. Only full blocks can be hits. For example, Mooncake's conversation trace has
105,592 hits of 288,500 blocks, 36.6 %. An access log has only the first blocks of a long prompt;
the other blocks of the prompt count as misses.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

from router.core.sketch import Sketch
from router.lab.simulator.traffic import Traffic
from router.lab.traces.trace import Trace

# The number of distinct blocks, or of distinct lengths, that are counted exactly.
EXACT: Final = 1 << 20
MODELS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Counts of blocks of prompts: the cache hits, and all blocks."""

    hits: int
    asked: int  # all blocks of the prompts, partial ones included

    @property
    def share(self) -> float:
        """The hit rate, 0 to 1."""
        return self.hits / self.asked if self.asked else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFacts:
    """Token counts of prompts or of answers. Quantiles are computed by the nearest-rank method."""

    mean: float
    p50: float
    p95: float
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """The statistics of the traffic of one source."""

    name: str
    rows: int
    duration_s: float  # seconds from the first arrival to the last
    rate: float  # arrivals per second; 0 if the duration is 0
    gap_cv: float  # coefficient of variation of the gaps between arrivals; 1 for a Poisson process
    input: LengthFacts
    output: LengthFacts
    no_output: int  # arrivals without output tokens, mostly failed requests
    block_tokens: int
    distinct_blocks: int
    is_exact: bool  # False: `distinct_blocks` and `reuse` are estimates
    reuse: Reuse | None  # reuse in an infinite shared cache; None: the source has no prefixes
    # Requests by model; after 100 models, further models count under "".
    models: dict[str | None, int]
    # Number of rows that the reader skipped or completed with estimates, by reason.
    notes: dict[str, int]


def describe(traffic: Traffic) -> TraceFacts:
    """Read all requests of a source once. Raises TraceError, and ValueError for no requests."""
    inputs, outputs, blocks = _Lengths(), _Lengths(), _Distinct()
    models: dict[str | None, int] = {}
    size = traffic.block_tokens
    rows = asked = known = 0
    first = last = squares = 0.0
    for arrival in traffic:
        at = arrival.at
        if rows:
            squares += (at - last) ** 2
        else:
            first = at
        last = at
        rows += 1
        inputs.add(arrival.prompt_tokens)
        outputs.add(arrival.output_tokens)
        asked += -(-arrival.prompt_tokens // size)
        if arrival.blocks:
            known += len(arrival.blocks)
            blocks.add(arrival.blocks)
        model = arrival.model
        if model not in models and len(models) >= MODELS_MAX:
            model = ""
        models[model] = models.get(model, 0) + 1
    if not rows:
        raise ValueError(f"{traffic.name}: no requests")
    duration = last - first
    gap = duration / (rows - 1) if rows > 1 else 0.0
    spread = squares / (rows - 1) - gap * gap if rows > 1 else 0.0
    distinct = min(blocks.count(), known)
    return TraceFacts(
        name=traffic.name,
        rows=rows,
        duration_s=duration,
        rate=rows / duration if duration else 0.0,
        gap_cv=sqrt(max(spread, 0.0)) / gap if gap else 0.0,
        input=inputs.facts(),
        output=outputs.facts(),
        no_output=outputs.counts.get(0, 0),
        block_tokens=size,
        distinct_blocks=distinct,
        is_exact=blocks.is_exact,
        reuse=Reuse(hits=known - distinct, asked=asked) if known else None,
        models=models,
        notes=traffic.notes() if isinstance(traffic, Trace) else {},
    )


class _Lengths:
    """Counts lengths of prompts or of answers, to find their quantiles.

    The first `most` distinct lengths are counted exactly; further lengths are accurate to 1 %.
    Lengths are integers that repeat, so the number of distinct lengths is small.
    """

    def __init__(self, most: int = EXACT) -> None:
        self.counts: dict[int, int] = {}
        self._most = most
        self._total = self._longest = self._rows = 0
        self._sketch: Sketch | None = None  # for further lengths, after `most` distinct lengths

    def add(self, length: int) -> None:
        self._rows += 1
        self._total += length
        if length > self._longest:
            self._longest = length
        counts = self.counts
        if length in counts:
            counts[length] += 1
        elif len(counts) < self._most:
            counts[length] = 1
        else:
            self._sketch = self._sketch or Sketch()
            self._sketch.add(length)

    def facts(self) -> LengthFacts:
        return LengthFacts(
            mean=self._total / self._rows,
            p50=self._quantile(0.5),
            p95=self._quantile(0.95),
            most=self._longest,
        )

    def _quantile(self, q: float) -> float:
        steps: list[tuple[float, int]] = sorted(self.counts.items())
        if self._sketch is not None:
            before = 0
            for value, seen in self._sketch.cumulative():
                steps.append((value, seen - before))
                before = seen
            steps.sort()
        rank = max(1, ceil(q * self._rows))
        for value, count in steps:
            rank -= count
            if rank <= 0:
                return value
        raise AssertionError("the counts of all steps add up to the rows")


class _Distinct:
    """Estimates the number of distinct 64-bit hashes with a sample of at most `most` of them.

    The sample has the hashes whose lowest n bits are 0; n grows when the sample is full. So the
    number of occurrences of a hash does not change whether the hash is in the sample.
    """

    def __init__(self, most: int = EXACT) -> None:
        self._most = most
        self._kept: set[int] = set()
        self._mask = 0

    def add(self, hashes: tuple[int, ...]) -> None:
        if self._mask:
            mask = self._mask
            hashes = tuple([one for one in hashes if not one & mask])
        kept = self._kept
        kept.update(hashes)
        while len(kept) > self._most:
            self._mask = self._mask << 1 | 1
            mask = self._mask
            kept = self._kept = {one for one in kept if not one & mask}

    @property
    def is_exact(self) -> bool:
        return not self._mask

    def count(self) -> int:
        return len(self._kept) * (self._mask + 1)
