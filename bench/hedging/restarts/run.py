"""One simulation of a rolling restart, and its figures.

Must never: count a request that arrives before the first restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TextIO

from bench.fleet.statistics import quantile
from bench.hedging.restarts.roll import Case, Roll
from bench.hedging.simulated import nodes
from router.core.errors import Reason
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import simulate


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run. Times are in seconds; tokens are prompt tokens."""

    requests: int
    failed: int
    prompt_tokens: int
    hit_tokens: int  # tokens that the engines had in their prefix caches
    other_p50: float  # TTFT of the requests that were not copied; also `other_p99`
    other_p99: float
    copies: int
    copy_tokens: int  # tokens of the copies that were not cached, counted by the router
    prefilled_tokens: int  # computed by all engines in the whole run


class _Counted:
    """Counts the requests that arrive in the measured time."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._end = begin, end
        self.requests = self.failed = self.prompt_tokens = self.hit_tokens = self.copies = 0
        self.ttfts: list[float] = []  # of requests that were not copied; infinite without an answer

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        if not self._begin <= arrival.at < self._end:
            return
        self.requests += 1
        self.prompt_tokens += arrival.prompt_tokens
        self.hit_tokens += outcome.cached_tokens
        self.failed += outcome.reason is not Reason.OK
        self.copies += outcome.warmed
        if not outcome.warmed:
            ttft_s = outcome.ttft_s
            self.ttfts.append(inf if ttft_s is None else ttft_s)


@dataclass(frozen=True, slots=True)
class Run:
    """One run. Picklable."""

    policy: str  # the name of the contestant
    scenario: Scenario
    seed: int  # of the traffic
    case: Case
    roll: Roll

    def run(self, line: TextIO | None = None) -> Figures:
        """Simulate the run; `line` is not used. Raises the errors of `simulate`."""
        roll = self.roll
        seen = _Counted(roll.warm_s, roll.until_s)
        traffic = nodes.traffic(roll.rate(self.case), roll.until_s, self.seed, roll.replicas)
        totals = simulate(self.scenario, traffic, seen)
        ranked = sorted(seen.ttfts)
        return Figures(
            seen.requests,
            seen.failed,
            seen.prompt_tokens,
            seen.hit_tokens,
            *(_known(quantile(ranked, q)) for q in (0.5, 0.99)),
            seen.copies,
            totals.hedges.warm_up_tokens,
            sum(engine.prefilled_tokens for engine in totals.engines),
        )


def _known(ttft_s: float | None) -> float:
    return inf if ttft_s is None else ttft_s
