"""Collects the statistics of a group of requests: all requests, those of a class, or those of a
tenant.

In quantiles, a request without a complete answer counts as slower than all other requests, so that
fast failures do not improve the quantiles. Must never: keep a request.

`Bin`, `Series`: a time series of a run: a bounded number of equal time intervals, the bins, over a
run of unknown length.

Bins start narrow. If a time is after the last possible bin, pairs of neighbouring bins are merged,
so that each bin becomes twice as wide. Must never: hold more than `bins_max` bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from mypy_extensions import mypyc_attr

from router.core.errors import Reason
from router.lab.simulator.outcome import EXPIRED, REFUSED
from router.lab.sketch import ACCURACY, Sketch

BINS_MAX = 128
_FIRST_WIDTH_S = 1 / 16


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Bin:
    """The requests that arrived in one time interval, and the load of the replicas in this
    interval.
    """

    __slots__ = ("failed", "load", "load_max", "load_min", "requests", "samples", "ttft")

    def __init__(self) -> None:
        self.requests = 0  # requests that arrived in the interval; each is counted when it ends
        self.failed = 0
        self.ttft = Sketch()  # TTFT of answered requests that arrived in the interval
        self.samples = 0  # number of samples of the replicas' load
        # For each sample, the mean, the smallest and the largest load of the replicas are added
        # here.
        self.load = 0.0
        self.load_min = 0.0
        self.load_max = 0.0

    def merge(self, other: Bin) -> None:
        self.requests += other.requests
        self.failed += other.failed
        self.ttft.merge(other.ttft)
        self.samples += other.samples
        self.load += other.load
        self.load_min += other.load_min
        self.load_max += other.load_max


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Series:
    """A sequence of bins over the time since the traffic began, in seconds."""

    __slots__ = ("_bins", "bins_max", "width_s")

    def __init__(self, bins_max: int = BINS_MAX) -> None:
        self.bins_max = bins_max
        self.width_s = _FIRST_WIDTH_S
        self._bins: list[Bin] = []

    def __iter__(self) -> Iterator[Bin]:
        return iter(self._bins)

    def __len__(self) -> int:
        return len(self._bins)

    def at(self, time: float) -> Bin:
        """Return the bin of a time >= 0.

        Do not keep the bin: the next call may merge it with another bin.
        """
        index = int(time / self.width_s)
        bins = self._bins
        if index >= len(bins):
            while index >= self.bins_max:
                self._widen()
                index = int(time / self.width_s)
            bins = self._bins
            bins.extend(Bin() for _ in range(index + 1 - len(bins)))
        return bins[index]

    def answered(self, arrived: float, ttft_s: float) -> None:
        found = self.at(arrived)
        found.requests += 1
        found.ttft.add(ttft_s)

    def not_answered(self, arrived: float) -> None:
        found = self.at(arrived)
        found.requests += 1
        found.failed += 1

    def sampled(self, now: float, loads: Sequence[float]) -> None:
        """Add a sample of the load of each replica; `loads` must not be empty."""
        found = self.at(now)
        found.samples += 1
        found.load += sum(loads) / len(loads)
        found.load_min += min(loads)
        found.load_max += max(loads)

    def coarse(self, bins_max: int) -> Series:
        """Return a copy with at most `bins_max` bins."""
        copy = Series(self.bins_max)
        copy.width_s = self.width_s
        for one in self._bins:
            copy._bins.append(Bin())
            copy._bins[-1].merge(one)
        while len(copy) > bins_max:
            copy._widen()
        return copy

    def _widen(self) -> None:
        for left, right in zip(self._bins[::2], self._bins[1::2], strict=False):
            left.merge(right)
        self._bins = self._bins[::2]
        self.width_s *= 2


# A sketch with this number of buckets covers 14 powers of ten with an accuracy of 0.1 %.
BUCKETS_MAX = 16_384
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Group:
    """Counts of requests and tokens, and distributions of times in seconds."""

    __slots__ = (
        "cached_tokens",
        "expired",
        "failed",
        "good",
        "good_tokens",
        "latency",
        "output_tokens",
        "prompt_tokens",
        "refused",
        "requests",
        "tpot",
        "ttft",
        "waits",
    )

    def __init__(self, accuracy: float = ACCURACY) -> None:
        """`accuracy`: the relative accuracy of the distributions."""
        self.requests = 0  # requests that ended, failed requests included
        self.failed = 0
        self.refused = 0  # requests that failed because the router's queue was full
        self.expired = 0  # requests that failed because a deadline passed in the router's queue
        self.good = 0  # requests answered within the SLO
        self.good_tokens = 0  # output tokens of requests within the SLO
        # Tokens of completely answered requests.
        self.output_tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0  # prompt tokens found in the engine's prefix cache
        # Distributions over completely answered requests.
        self.ttft = Sketch(accuracy, BUCKETS_MAX)
        self.tpot = Sketch(accuracy, BUCKETS_MAX)  # only answers of at least two tokens have a TPOT
        self.latency = Sketch(accuracy, BUCKETS_MAX)  # time from arrival to last token
        # Time in the router's queue; without a queue, this sketch is empty.
        self.waits = Sketch(accuracy, BUCKETS_MAX)

    def answered(
        self,
        ttft_s: float,
        tpot_s: float | None,
        latency_s: float,
        is_good: bool,
        prompt_tokens: int,
        cached_tokens: int,
        output_tokens: int,
        queued_s: float = -1.0,
    ) -> None:
        """Count a completely answered request.

        `queued_s`: seconds in the router's queue; below 0: the router has no queue.
        """
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        self.output_tokens += output_tokens
        if is_good:
            self.good += 1
            self.good_tokens += output_tokens
        self.ttft.add(ttft_s)
        self.latency.add(latency_s)
        if tpot_s is not None:
            self.tpot.add(tpot_s)
        if queued_s >= 0.0:
            self.waits.add(queued_s)

    def not_answered(self, reason: Reason = Reason.INTERNAL) -> None:
        self.requests += 1
        self.failed += 1
        self.refused += reason in REFUSED
        self.expired += reason in EXPIRED

    @property
    def attainment(self) -> float | None:
        """The share of all requests, including failed ones, within the SLO; None: no requests."""
        return self.good / self.requests if self.requests else None

    @property
    def hit_rate(self) -> float | None:
        """The share of prompt tokens that engines found in their caches; None: no prompt tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    def quantile(self, of: Sketch, q: float) -> float | None:
        """Return a quantile of `ttft`, `tpot` or `latency` over all requests.

        The result is infinite if the request at this quantile was not answered.
        """
        return of.quantile(q, above=self.failed)

    def document(self) -> dict[str, Any]:
        """Return all statistics as values for JSON.

        A value is None if there are no requests or if the value is infinite.
        """
        return {
            "requests": self.requests,
            "failed": self.failed,
            "refused": self.refused,
            "expired": self.expired,
            "slo_attainment": self.attainment,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "prefix_hit_rate": self.hit_rate,
            "ttft_s": self._distribution(self.ttft),
            "tpot_s": self._distribution(self.tpot),
            "latency_s": self._distribution(self.latency),
            "queued_s": {n: self.waits.quantile(q) for n, q in QUANTILES.items()},
        }

    def _distribution(self, of: Sketch) -> dict[str, float | None]:
        found = {"mean": of.mean, **{n: self.quantile(of, q) for n, q in QUANTILES.items()}}
        return {n: v if v is not None and isfinite(v) else None for n, v in found.items()}
