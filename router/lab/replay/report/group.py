"""Collects the statistics of a group of requests: all requests, those of a class, or those of a
tenant.

In quantiles, a request without a complete answer counts as slower than all other requests, so that
fast failures do not improve the quantiles. Must never: keep a request.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from mypy_extensions import mypyc_attr

from router.core.errors import Reason
from router.lab.simulator.outcome import EXPIRED, REFUSED
from router.lab.sketch import ACCURACY, Sketch

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
