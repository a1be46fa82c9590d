"""Counts the requests of one run, and computes its figures.

Times are those of requests that arrived in the measured time. A request without a whole answer
counts as the slowest request of its class. Tokens are those of answers that ended in the measured
time. Fairness is Jain's index over the tenants of class batch, each with the tokens (prompt and
output) that it was served. These tenants always have requests that wait, and the first of them has
as many clients as the others together. So the index is 1 if all tenants are served equally, and
0.75 if each is served in proportion to its clients.

Must never count a request of the warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import fmean

from bench.fleet.statistics import quantile
from bench.priority.simulated.seen import jain
from bench.priority.traffic import CLASSES
from router.config.model import HighClass

HIGH_S = HighClass().ttft_slo_s  # the default SLO of class high for the time to first token


@dataclass(slots=True)
class Figures:
    """The figures of one run. Times to first token are in seconds, by class."""

    ttft_mean_s: dict[str, float] = field(default_factory=dict)
    ttft_p99_s: dict[str, float] = field(default_factory=dict)
    in_slo: float = 0.0  # share of the requests of class high with a first token within `HIGH_S`
    hit_rate: float = 0.0  # share of the prompt tokens that engines found in their caches
    jain: float = 0.0
    tokens_s: float = 0.0  # output tokens/s
    errors: int = 0
    problems: list[str] = field(default_factory=list)


class Counted:
    """The requests of one run; the measured time is from `begin` to `end`, in seconds."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin = begin
        self.end = end
        self._ttfts: dict[str, list[float]] = {name: [] for name in CLASSES}
        self._served: dict[str, int] = {}
        self._output = 0
        self._errors = 0

    def add(
        self,
        name: str,
        tenant: str,
        arrived: float,
        ended: float,
        ttft_s: float | None,
        prompt_tokens: int,
        output_tokens: int,
    ) -> None:
        """Count one request of the class `name`. `ttft_s`: `None` without a whole answer."""
        if self.begin <= arrived < self.end:
            self._ttfts[name].append(inf if ttft_s is None else ttft_s)
            self._errors += ttft_s is None
        if ttft_s is not None and self.begin <= ended < self.end:
            self._output += output_tokens
            if name == "batch":
                tokens = prompt_tokens + output_tokens
                self._served[tenant] = self._served.get(tenant, 0) + tokens

    def figures(self, hit_rate: float) -> Figures:
        """Return the figures. Raises ValueError if a class has no request with an answer."""
        found = Figures(hit_rate=hit_rate, errors=self._errors)
        for name, ttfts in self._ttfts.items():
            most = max((one for one in ttfts if isfinite(one)), default=None)
            if most is None:
                raise ValueError(f"no request of class {name} was answered: the run is too short")
            ranked = sorted(min(one, most) for one in ttfts)
            found.ttft_mean_s[name] = fmean(ranked)
            found.ttft_p99_s[name] = quantile(ranked, 0.99) or 0.0
        high = self._ttfts["high"]
        found.in_slo = sum(one <= HIGH_S for one in high) / len(high)
        found.jain = jain([float(tokens) for tokens in self._served.values()])
        found.tokens_s = self._output / (self.end - self.begin)
        return found
