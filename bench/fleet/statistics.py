"""Computes the figures of one run from the records of its requests. Pure.

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
    """Return the quantile `q` of sorted values (nearest rank), or None if there are no values."""
    if not ranked:
        return None
    return ranked[max(0, ceil(q * len(ranked)) - 1)]


def quantile_bounds(ranked: Sequence[float], q: float) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the quantile `q` of sorted values.

    The bounds are order statistics, chosen with the normal approximation of the binomial
    distribution. Returns None if there are too few values.
    """
    n = len(ranked)
    spread = 1.96 * sqrt(n * q * (1 - q))
    low, high = floor(n * q - spread), ceil(n * q + spread)
    if low < 1 or high > n:
        return None
    return ranked[low - 1], ranked[high - 1]


def hotspot(shares: Sequence[float]) -> float | None:
    """Return the number of replicas times the largest share of the requests.

    The result is 1 if the requests are spread evenly. It is the number of replicas if one replica
    gets all requests.
    """
    total = sum(shares)
    return len(shares) * max(shares) / total if total > 0 else None


def differences(counters: Sequence[Counts], name: str) -> list[float]:
    """Return the increase of a counter of each engine. An engine that restarted counts from 0."""
    before, after = counters
    return [
        b[name] - a[name] if b[name] >= a[name] else b[name]
        for a, b in zip(before, after, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one router under one workload. Times are in seconds; None means unknown."""

    requests: int
    rate: float  # measured requests that were due, per second
    # A request without a whole answer counts like the slowest one with a whole answer.
    ttft_mean: float | None
    ttft_p50: float | None
    ttft_p90: float | None
    ttft_p95: float | None
    ttft_p99: float | None
    goodput: float  # requests/s with a whole answer and a first token within the SLO
    good_share: float
    tokens_s: float
    hit_rate: float | None
    hotspot: float | None
    preemptions: float
    errors: dict[str, int]
    late_p99: float | None  # seconds from the due time of a request to its sending
    load_cpu: float  # CPUs that the load generator used on average


def summarise(played: dict[str, Any], slo_s: float) -> Summary:
    """Summarise the result of `Player.play`. Errors are counted over the whole run, with the
    warm-up.
    """
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
    """Return the mean of sorted values, with the largest finite value in place of each infinity.

    Returns None if no value is finite.
    """
    most = next((value for value in reversed(ranked) if isfinite(value)), None)
    return None if most is None else fmean(min(value, most) for value in ranked)


def _ttft(record: dict[str, Any]) -> float:
    ttft = record["ttft"]
    return inf if ttft is None or record["error"] else float(ttft)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
