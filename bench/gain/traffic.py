"""Plays windows of a recorded trace. Each request gets one of three classes at random.

The trace is divided into windows. Run number n plays window n, so runs differ in their traffic, and
every compared order and policy gets the same windows. If there are more runs than windows, the
first windows are used again.

Must never depend on a policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from bench.traces import PublicTrace
from bench.traces.reuse import hits_of
from router.lab.simulator.traffic import Arrival

SHARES = {"high": 0.2, "normal": 0.5, "low": 0.3}


@dataclass(frozen=True, slots=True)
class Window:
    """The traffic of one run: one part of a trace, played at another speed."""

    path: str
    since_s: float  # start of the window in the trace's time
    requests: int
    speedup: float
    seed: int
    block_tokens: int
    name: str = "window"

    def __iter__(self) -> Iterator[Arrival]:
        rng = Random(f"classes {self.seed}")
        names, shares = list(SHARES), list(SHARES.values())
        trace = PublicTrace(
            self.path, spread_seed=self.seed, since_s=self.since_s, limit=self.requests
        )
        begin = None
        for arrival in trace:
            if begin is None:
                begin = arrival.at
            arrival.at = (arrival.at - begin) / self.speedup
            arrival.priority = rng.choices(names, shares)[0]
            yield arrival

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()


@dataclass(frozen=True, slots=True)
class Law:
    """The request rate, the lengths and the reuse of a whole trace."""

    block_tokens: int
    rate: float  # requests/s of the trace at its own speed
    seconds: float
    sizes: tuple[tuple[float, int], ...]  # (prompt tokens, output tokens) of each request
    # Prompt tokens of each request that one cache as large as all of the fleet's would hold.
    reused: tuple[float, ...]


def law(path: str, kv_tokens: int) -> Law:
    """Measure a trace. `kv_tokens` is the size of all the fleet's caches together. Raises
    TraceError, OSError.
    """
    trace = PublicTrace(path)
    size = trace.block_tokens
    sizes, reused = [], []
    last = 0.0
    for arrival, hits in hits_of(trace, kv_tokens // size):
        sizes.append((float(arrival.prompt_tokens), arrival.output_tokens))
        reused.append(float(hits * size))
        last = arrival.at
    return Law(size, len(sizes) / last, last, tuple(sizes), tuple(reused))
