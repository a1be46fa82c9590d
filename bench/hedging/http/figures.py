"""Computes a run's figures from the load generator's records and the engines' counters. Pure.

A request without a whole answer counts as slower than all others. Copies are counted in the same
way for every router: the requests that engines received minus the requests that clients sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from bench.fleet.script import Script
from bench.fleet.statistics import quantile, quantile_bounds
from bench.hedging.http.traffic import URGENT


@dataclass(frozen=True, slots=True)
class Times:
    """Times to first token of one class, in seconds.

    A time is None if there were no requests, or if so many failed that it is not finite.
    """

    requests: int
    p50: float | None
    p95: float | None
    p99: float | None
    p99_bounds: tuple[float, float] | None  # 95 % confidence interval of the p99
    worst: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one router in one scenario."""

    urgent: Times
    other: Times
    # Times before the fault begins. There are no such requests if the fault exists from the start.
    urgent_normal: Times
    urgent_share: float  # share of the script's prompt tokens that belong to urgent requests
    copies: int  # requests that engines received minus requests that clients sent
    extra_asked: float  # prompt tokens of the copies, as a share of the script's prompt tokens
    # Prompt tokens that the engines computed, relative to the script's prompt tokens, minus 1. It
    # can be less than `extra_asked`, because a copy may be cancelled before its prompt is computed.
    extra_computed: float
    errors: dict[str, int]  # number of failed requests in the whole run, by error
    urgent_errors: int  # failed urgent requests in the measured time
    late_p99: float | None  # seconds from the due time of a request to its sending
    load_cpu: float  # CPUs that the load generator used on average


def figures(told: dict[str, Any], script: Script, normal_from: float) -> Figures:
    """Compute the figures from the load generator's answer `told`.

    `normal_from` is the start of the time without faults, in seconds since the start of the run.
    """
    records = told["played"]["records"]
    measured = [r for r in records if r["measured"]]
    normal = [r for r in records if normal_from <= r["due"] < script.measure_from]
    late = sorted(r["sent"] - r["due"] for r in measured if r["sent"])
    tokens = _tokens(script)
    return Figures(
        urgent=times(r for r in measured if r["urgency"] == URGENT),
        other=times(r for r in measured if r["urgency"] != URGENT),
        urgent_normal=times(r for r in normal if r["urgency"] == URGENT),
        urgent_share=_tokens(script, URGENT) / tokens,
        copies=round(_gained(told, "asked")) - len(records),
        extra_asked=_gained(told, "asked_tokens") / tokens - 1,
        extra_computed=_gained(told, "prefilled_tokens") / tokens - 1,
        errors=dict(Counter(r["error"] for r in records if r["error"])),
        urgent_errors=sum(1 for r in measured if r["error"] and r["urgency"] == URGENT),
        late_p99=quantile(late, 0.99),
        load_cpu=told["played"]["cpu_share"],
    )


def times(records: Iterable[dict[str, Any]]) -> Times:
    seen = sorted(inf if r["ttft"] is None or r["error"] else float(r["ttft"]) for r in records)
    bounds = quantile_bounds(seen, 0.99)
    return Times(
        requests=len(seen),
        p50=_finite(quantile(seen, 0.5)),
        p95=_finite(quantile(seen, 0.95)),
        p99=_finite(quantile(seen, 0.99)),
        p99_bounds=bounds if bounds is not None and isfinite(bounds[1]) else None,
        worst=_finite(seen[-1]) if seen else None,
    )


def _tokens(script: Script, urgency: str | None = None) -> float:
    sizes: Sequence[tuple[float, int]] = script.sizes()  # each conversation has one request
    return sum(
        prompt
        for (prompt, _), conversation in zip(sizes, script.conversations, strict=True)
        if urgency is None or conversation.urgency == urgency
    )


def _gained(told: dict[str, Any], name: str) -> float:
    pairs = zip(told["before"], told["after"], strict=True)
    return float(sum(after[name] - before[name] for before, after in pairs))


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
