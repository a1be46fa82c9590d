"""A recorded trace with three classes: requests get their class at random.

Windows of the trace follow each other; run number n plays window n, so that runs differ in their
traffic, and every contestant plays the same windows. A window that begins behind the end of the
trace begins again at its start.

Must never know a policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from router.simulator.traffic import Arrival
from router.traces import open_trace
from router.traces.reuse import hits_of

SHARES = {"high": 0.2, "normal": 0.5, "low": 0.3}


@dataclass(frozen=True, slots=True)
class Window:
    """A `Traffic`: one part of a trace, played at another speed."""

    path: str
    since_s: float  # on the trace's clock
    requests: int
    speedup: float
    seed: int
    block_tokens: int
    name: str = "window"

    def __iter__(self) -> Iterator[Arrival]:
        rng = Random(f"classes {self.seed}")
        names, shares = list(SHARES), list(SHARES.values())
        trace = open_trace(
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
    """What a trace asks for, measured once."""

    block_tokens: int
    rate: float  # requests/s of the trace
    seconds: float
    sizes: tuple[tuple[float, int], ...]  # prompt and output tokens
    reused: tuple[float, ...]  # prompt tokens that one cache as large as the fleet's holds


def law(path: str, kv_tokens: int) -> Law:
    """Read a trace once. `kv_tokens`: size of all caches. Raises TraceError, OSError."""
    trace = open_trace(path)
    size = trace.block_tokens
    sizes, reused = [], []
    last = 0.0
    for arrival, hits in hits_of(trace, kv_tokens // size):
        sizes.append((float(arrival.prompt_tokens), arrival.output_tokens))
        reused.append(float(hits * size))
        last = arrival.at
    return Law(size, len(sizes) / last, last, tuple(sizes), tuple(reused))
