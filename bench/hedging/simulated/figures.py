"""Computes the figures of one run that the goals compare.

Prefill tokens are all prompt tokens that the engines computed, also for copies that were cancelled
and for prefixes that were no longer cached. Tokens of other clients (neighbours) are subtracted.

Must never count a request outside the measured time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TextIO

from bench.hedging.simulated import nodes
from bench.hedging.simulated.task import Result, Task
from router.lab.simulator.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run. Times are in seconds, and infinite if too many requests failed."""

    requests: int  # number of measured requests that may be hedged
    p50: float  # TTFT of requests that may be hedged; also `p99` and `slowest`
    p99: float
    slowest: float
    other_p99: float  # TTFT of all other requests
    hedged: int
    won: int
    copy_tokens: int  # prompt tokens of all copies that were not cached, counted by the router
    prefilled_tokens: int  # computed by all engines in the whole run, warm-up included
    preemptions: int  # preemptions in all engines in the whole run

    @classmethod
    def of(cls, task: Task, result: Result) -> Figures:
        urgent, other = result.of(nodes.URGENT), result.of(nodes.OTHER)
        totals = result.totals
        foreign = sum(one.prompt_tokens for one in task.scenario.neighbours)
        return cls(
            urgent.requests,
            *(_known(urgent.ttft(q)) for q in (0.5, 0.99, 1.0)),
            _known(other.ttft(0.99)),
            urgent.hedged,
            urgent.won,
            totals.hedges.fired_tokens,
            sum(engine.prefilled_tokens for engine in totals.engines) - foreign,
            sum(engine.preemptions for engine in totals.engines),
        )


def _known(ttft_s: float | None) -> float:
    return inf if ttft_s is None else ttft_s


@dataclass(frozen=True, slots=True)
class Measured:
    """A simulation task that returns `Figures`."""

    task: Task

    @property
    def policy(self) -> str:
        return self.task.policy

    @property
    def scenario(self) -> Scenario:
        return self.task.scenario

    def run(self, line: TextIO | None = None) -> Figures:
        """Simulate and return the figures; `line` is not used. Raises the errors of `simulate`."""
        return Figures.of(self.task, self.task.run(line))
