"""Computes statistics of the traffic without a simulation, in one pass and in bounded memory.

Reuse is the hit rate of an infinite cache that all replicas share. The hash of a block depends on
all blocks before it. So a block was seen before only if its whole prefix was seen before. Therefore
the number of hits is the number of all blocks minus the number of distinct blocks. Up to `EXACT`
distinct blocks are counted exactly. Beyond that they are sampled by hash, and the estimate of their
number has a standard error of about 0.1 % (Wegman's adaptive sampling; Flajolet, "On adaptive
sampling", Computing 43, 1990).

The hit rate refers to ALL blocks of the prompts, including partial blocks: a prompt has ceil(prompt
/ block_tokens) blocks. Only full blocks can be hits. An access log has only the first blocks of a
long prompt; the other blocks of the prompt count as misses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from router.lab.simulator.traffic import Traffic
from router.lab.traces.trace import Trace

EXACT: Final = 1 << 20  # the number of distinct blocks that are counted exactly
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
class TraceFacts:
    """The statistics of the traffic of one source."""

    name: str
    rows: int
    duration_s: float  # seconds from the first arrival to the last
    rate: float  # arrivals per second; 0 if the duration is 0
    prompt_tokens: float  # mean
    output_tokens: float  # mean
    block_tokens: int
    reuse: Reuse | None  # reuse in an infinite shared cache; None: the source has no prefixes
    # Requests by model; after 100 models, further models count under "".
    models: dict[str | None, int]
    # Number of rows that the reader skipped or completed with estimates, by reason.
    notes: dict[str, int]


def describe(traffic: Traffic) -> TraceFacts:
    """Read all requests of a source once. Raises TraceError, and ValueError for no requests."""
    blocks = _Distinct()
    models: dict[str | None, int] = {}
    size = traffic.block_tokens
    rows = prompts = outputs = asked = known = 0
    first = last = 0.0
    for arrival in traffic:
        last = arrival.at
        if not rows:
            first = last
        rows += 1
        prompts += arrival.prompt_tokens
        outputs += arrival.output_tokens
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
    hits = known - min(blocks.count(), known)
    return TraceFacts(
        name=traffic.name,
        rows=rows,
        duration_s=duration,
        rate=rows / duration if duration else 0.0,
        prompt_tokens=prompts / rows,
        output_tokens=outputs / rows,
        block_tokens=size,
        reuse=Reuse(hits=hits, asked=asked) if known else None,
        models=models,
        notes=traffic.notes() if isinstance(traffic, Trace) else {},
    )


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

    def count(self) -> int:
        return len(self._kept) * (self._mask + 1)
