"""Computes the figures of a row from the records of its requests. Pure.

A request without a whole answer counts as slower than all others, so that failing fast does not
improve a percentile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, sqrt
from statistics import fmean
from typing import Any

Counts = Sequence[dict[str, float]]


def quantile(ranked: Sequence[float], q: float) -> float | None:
    """The smallest value that at least a share `q` of values does not exceed; None if empty."""
    if not ranked:
        return None
    return ranked[max(0, ceil(q * len(ranked)) - 1)]


def quantile_bounds(ranked: Sequence[float], q: float) -> tuple[float, float] | None:
    """95 % confidence interval of a quantile (order statistics, normal approximation).

    `None` if there are too few values.
    """
    n = len(ranked)
    spread = 1.96 * sqrt(n * q * (1 - q))
    low, high = floor(n * q - spread), ceil(n * q + spread)
    if low < 1 or high > n:
        return None
    return ranked[low - 1], ranked[high - 1]


def hotspot(shares: Sequence[float]) -> float | None:
    """Number of replicas times the largest share: 1 is even; all on one gives the number of
    replicas.
    """
    total = sum(shares)
    return len(shares) * max(shares) / total if total > 0 else None


def differences(counters: Sequence[Counts], name: str) -> list[float]:
    """What each engine counted between two readings; a restarted engine counts from 0."""
    before, after = counters
    return [
        b[name] - a[name] if b[name] >= a[name] else b[name]
        for a, b in zip(before, after, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Summary:
    """One contestant under one workload. Times in seconds; None: not known."""

    requests: int
    rate: float  # measured requests/s that were due
    ttft_mean: float | None  # a request without a whole answer: as the slowest whole answer
    ttft_p50: float | None
    ttft_p90: float | None
    ttft_p95: float | None
    ttft_p99: float | None
    goodput: float  # requests/s with a whole answer and the first token in time
    good_share: float
    tokens_s: float
    hit_rate: float | None
    hotspot: float | None
    preemptions: float
    errors: dict[str, int]
    late_p99: float | None  # delay in seconds between due and sent
    load_cpu: float  # CPU use of the load generator; 1: one CPU


def summarise(played: dict[str, Any], slo_s: float) -> Summary:
    """`played`: the result of `Player.play`. Errors are those of the whole run."""
    measured = [r for r in played["records"] if r["measured"]]
    ttfts = sorted(_ttft(r) for r in measured)
    good = sum(ttft <= slo_s for ttft in ttfts)
    seconds = played["measured_s"]
    queried = sum(differences(played["counters"], "queried"))
    late = sorted(r["sent"] - r["due"] for r in measured if r["sent"])
    return Summary(
        requests=len(measured),
        rate=len(measured) / seconds,
        ttft_mean=_mean(ttfts),
        ttft_p50=_finite(quantile(ttfts, 0.5)),
        ttft_p90=_finite(quantile(ttfts, 0.9)),
        ttft_p95=_finite(quantile(ttfts, 0.95)),
        ttft_p99=_finite(quantile(ttfts, 0.99)),
        goodput=good / seconds,
        good_share=good / len(measured) if measured else 0.0,
        tokens_s=played["tokens_in_window"] / seconds,
        hit_rate=sum(differences(played["counters"], "hits")) / queried if queried else None,
        hotspot=hotspot(differences(played["counters"], "requests")),
        preemptions=sum(differences(played["counters"], "preemptions")),
        errors=dict(Counter(r["error"] for r in played["records"] if r["error"])),
        late_p99=quantile(late, 0.99),
        load_cpu=played["cpu_share"],
    )


def _mean(ranked: Sequence[float]) -> float | None:
    """The mean, with each infinity replaced by the largest finite value; None without one."""
    most = next((value for value in reversed(ranked) if isfinite(value)), None)
    return None if most is None else fmean(min(value, most) for value in ranked)


def _ttft(record: dict[str, Any]) -> float:
    ttft = record["ttft"]
    return inf if ttft is None or record["error"] else float(ttft)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
