"""Runs one simulation of the hedging bench and computes its figures by class.

Every time to first token is kept: an approximate histogram is too coarse for goals of two percent.
A request without an answer counts as slower than all others.

Must never count a request that arrived outside the measured time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import fsum, inf
from typing import TextIO

from bench.findings.stored import show
from bench.fleet.statistics import quantile
from router.core.errors import Reason
from router.lab.replay.workers import run_all
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import simulate
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Traffic


@dataclass(slots=True)
class Class:
    """The requests of one priority class."""

    # Seconds; infinite without an answer.
    ttfts: array[float] = field(default_factory=lambda: array("d"))
    hedged: int = 0
    won: int = 0  # requests that were answered by their copy
    prefill_tokens: int = 0  # prompt tokens, without cached ones, of the attempts that answered
    wasted_tokens: int = 0  # prompt tokens, without cached ones, of cancelled copies
    _ranked: list[float] = field(default_factory=list)

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        ttft_s = outcome.ttft_s if outcome.reason is Reason.OK else None
        self.ttfts.append(inf if ttft_s is None else ttft_s)
        self.hedged += outcome.hedged
        self.won += outcome.hedge_won
        self.prefill_tokens += arrival.prompt_tokens - outcome.cached_tokens
        self.wasted_tokens += outcome.wasted_tokens

    @property
    def ranked(self) -> Sequence[float]:
        if len(self._ranked) != len(self.ttfts):
            self._ranked = sorted(self.ttfts)
        return self._ranked

    @property
    def requests(self) -> int:
        return len(self.ttfts)

    def ttft(self, q: float) -> float | None:
        """Quantile in seconds. None without requests; infinite if too many had no answer."""
        return quantile(self.ranked, q)

    @property
    def mean(self) -> float | None:
        return fsum(self.ttfts) / len(self.ttfts) if self.ttfts else None


@dataclass(slots=True)
class Result:
    """The result of one run."""

    label: str
    classes: dict[str, Class]
    totals: Totals

    def of(self, name: str) -> Class:
        return self.classes.get(name) or Class()

    @property
    def extra(self) -> float | None:
        """Prompt tokens of cancelled copies, as a share of the tokens of answered attempts."""
        asked = sum(seen.prefill_tokens for seen in self.classes.values())
        wasted = sum(seen.wasted_tokens for seen in self.classes.values())
        return wasted / asked if asked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One simulation: its scenario, its traffic, and which requests are counted. Picklable."""

    policy: str  # name of the hedging configuration, which labels the table row
    scenario: Scenario
    traffic: Callable[[], Traffic]  # called in the process of the simulation; must be picklable
    measure_from: float = 0.0  # seconds; requests that arrive earlier are not counted
    measure_until: float = inf  # seconds; requests that arrive from this time on are not counted

    def run(self, line: TextIO | None = None) -> Result:
        """Simulate the scenario; `line` is not used. Raises the errors of `simulate`."""
        seen = _Window(self.measure_from, self.measure_until)
        totals = simulate(self.scenario, self.traffic(), seen)
        return Result(self.policy, seen.classes, totals)


class _Window:
    """Collects figures by class for requests that arrive in the measured time."""

    def __init__(self, begin: float, end: float) -> None:
        self.classes: dict[str, Class] = {}
        self._begin = begin
        self._end = end

    def ended(self, outcome: Outcome) -> None:
        if self._begin <= outcome.arrival.at < self._end:
            self.classes.setdefault(outcome.arrival.priority, Class()).ended(outcome)


def play(tasks: Sequence[Task], at_once: int = 1) -> list[Result]:
    """Run all tasks, up to `at_once` at a time. Results are in the order of the tasks.

    Raises the errors of `run_all`.
    """
    return run_all(tasks, at_once, finished=show)
