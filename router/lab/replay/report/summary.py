"""Records a run: collects statistics of its requests in bounded memory.

Up to `TENANTS_MAX` tenants have their own statistics, in the order of their first ended requests.
All other tenants are one group. Must never: keep an outcome, or decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mypy_extensions import mypyc_attr

from router.core.errors import Reason
from router.lab.replay.report.group import Bin, Group, Series
from router.lab.replay.report.slo import Slo
from router.lab.simulator.outcome import Outcome

# Maximum number of tenants; each tenant needs four sketches, and a longer table is not readable.
TENANTS_MAX = 50
CLASSES_MAX = 20  # maximum number of classes; Hedgerow has five, but a log may contain any names
OTHERS = "(others)"
# The relative accuracy of the statistics of all requests. Runs may differ by less than 0.5 %, the
# accuracy of the statistics by class and by tenant.
_ACCURACY = 0.001


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Knowledge:
    """The error of the routers' cache estimates, in prompt tokens of answered requests."""

    __slots__ = ("expected", "too_high", "too_low")

    def __init__(self) -> None:
        self.expected = 0  # cached tokens that routers expected
        self.too_high = 0  # tokens that routers expected and engines did not find
        self.too_low = 0  # tokens that engines found and routers did not expect

    def compared(self, expected: int, cached: int) -> None:
        self.expected += expected
        if expected > cached:
            self.too_high += expected - cached
        else:
            self.too_low += cached - expected


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Summary:
    """The statistics of one run. It has the interface `Recorder`."""

    def __init__(self, slo: Slo, replicas: int) -> None:
        self.slo = slo
        self.replicas = replicas
        self.all = Group(_ACCURACY)
        self.by_class: dict[str, Group] = {}
        self.by_tenant: dict[str, Group] = {}
        # Number of requests by the replica of their last attempt.
        self.by_replica: dict[str, int] = {}
        self.reasons: dict[Reason, int] = {}  # number of failed requests by reason
        self.attempts: dict[int, int] = {}  # number of requests by number of attempts
        self.hedged = 0  # requests with a second copy
        self.hedges_won = 0  # requests whose second copy answered first
        self.wasted_tokens = 0  # prompt tokens computed for copies whose answer was not used
        self.knowledge = Knowledge()
        self.series = Series()
        self.began = float("inf")  # the earliest arrival of an ended request, in seconds
        self.until = 0.0  # the latest end of a request, in seconds

    def ended(self, outcome: Outcome) -> None:
        """Count one ended request."""
        arrival = outcome.arrival
        arrived, ended = arrival.at, outcome.ended
        if arrived < self.began:
            self.began = arrived
        if ended > self.until:
            self.until = ended
        attempts = outcome.attempts
        self.attempts[attempts] = self.attempts.get(attempts, 0) + 1
        if outcome.hedged:
            self.hedged += 1
            self.hedges_won += outcome.hedge_won
            self.wasted_tokens += outcome.wasted_tokens
        if outcome.replica:
            self.by_replica[outcome.replica] = self.by_replica.get(outcome.replica, 0) + 1
        groups = self._groups(arrival.priority, arrival.tenant)

        if outcome.reason is not Reason.OK:
            self.reasons[outcome.reason] = self.reasons.get(outcome.reason, 0) + 1
            self.series.not_answered(arrived)
            for group in groups:
                group.not_answered(outcome.reason)
            return
        latency = ended - arrived
        ttft = outcome.ttft_s
        if ttft is None:
            ttft = latency  # without tokens, the end of the answer counts
        tpot = outcome.tpot_s
        slo = self.slo
        is_good = ttft <= slo.ttft_s and (tpot is None or tpot <= slo.tpot_s)
        self.knowledge.compared(outcome.expected_tokens, outcome.cached_tokens)
        self.series.answered(arrived, ttft)
        for group in groups:
            group.answered(
                ttft,
                tpot,
                latency,
                is_good,
                arrival.prompt_tokens,
                outcome.cached_tokens,
                arrival.output_tokens,
                outcome.queued_s,
            )

    def sampled(self, now: float, loads: Sequence[float]) -> None:
        """Record the load of each replica: its running and waiting requests."""
        self.series.sampled(now, loads)

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the latest end; 0: no requests."""
        return max(self.until - self.began, 0.0)

    def per_s(self, count: float) -> float | None:
        """Return a count per second of the time from the first arrival to the latest end.

        None: this time is shorter than a nanosecond.
        """
        return count / self.span_s if self.span_s > 1e-9 else None

    @property
    def goodput(self) -> float | None:
        """Requests answered within the SLO, per second."""
        return self.per_s(self.all.good)

    @property
    def hotspot(self) -> float | None:
        """The largest share of requests at one replica, times the number of replicas.

        1: all replicas got the same number; None: no requests.
        """
        total = sum(self.by_replica.values())
        return self.replicas * max(self.by_replica.values()) / total if total else None

    @property
    def imbalance(self) -> float | None:
        """The largest load of a replica divided by the mean load, averaged over time.

        1: the load is even; None: no samples.
        """
        load = sum(one.load for one in self.series)
        return sum(one.load_max for one in self.series) / load if load > 0.0 else None

    @property
    def repeated(self) -> int:
        """The number of requests with more than one attempt."""
        return sum(count for attempts, count in self.attempts.items() if attempts > 1)

    def document(self) -> dict[str, Any]:
        """Return all statistics as values for JSON, always in the same order."""
        return {
            **self.all.document(),
            "span_s": self.span_s,
            "requests_per_s": self.per_s(self.all.requests - self.all.failed),
            "output_tokens_per_s": self.per_s(self.all.output_tokens),
            "goodput_requests_per_s": self.goodput,
            "goodput_tokens_per_s": self.per_s(self.all.good_tokens),
            "hotspot": self.hotspot,
            "load_imbalance": self.imbalance,
            "cached_tokens_expected": self.knowledge.expected,
            "cached_tokens_expected_wrongly": self.knowledge.too_high,
            "cached_tokens_unexpected": self.knowledge.too_low,
            "failures": {str(reason): self.reasons[reason] for reason in sorted(self.reasons)},
            "attempts": {str(n): self.attempts[n] for n in sorted(self.attempts)},
            "hedged": self.hedged,
            "hedges_won": self.hedges_won,
            "wasted_tokens": self.wasted_tokens,
            "classes": _documents(self.by_class),
            "tenants": _documents(self.by_tenant),
            "series": {"bin_s": self.series.width_s, "bins": [_bin(one) for one in self.series]},
        }

    def _groups(self, priority: str, tenant: str) -> list[Group]:
        groups = [self.all]
        if priority:
            groups.append(_bounded(self.by_class, priority, CLASSES_MAX))
        if tenant:
            groups.append(_bounded(self.by_tenant, tenant, TENANTS_MAX))
        return groups


def _bounded(groups: dict[str, Group], name: str, most: int) -> Group:
    group = groups.get(name)
    if group is None:
        if len(groups) >= most:
            name = OTHERS
        group = groups.setdefault(name, Group())
    return group


def _documents(groups: dict[str, Group]) -> dict[str, Any]:
    return {name: groups[name].document() for name in sorted(groups)}


def _bin(one: Bin) -> dict[str, Any]:
    samples = one.samples
    return {
        "requests": one.requests,
        "failed": one.failed,
        "ttft_p50_s": one.ttft.quantile(0.5),
        "ttft_p99_s": one.ttft.quantile(0.99),
        "load_mean": one.load / samples if samples else None,
        "load_emptiest": one.load_min / samples if samples else None,
        "load_fullest": one.load_max / samples if samples else None,
    }
