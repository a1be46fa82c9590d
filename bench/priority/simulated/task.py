"""Runs one simulation of an order and computes its results.

Must never count requests or tokens outside the measured time.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TextIO

from bench.findings.stored import show
from bench.priority.rows import Row, times
from bench.priority.simulated.world import Crowd, scenario
from router.core.errors import Reason
from router.lab.replay.workers import run_all
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import simulate


@dataclass(frozen=True, slots=True)
class Length:
    """Lengths of the simulation in seconds."""

    warm_s: float = 60.0
    measured_s: float = 400.0
    seeds: int = 3

    @classmethod
    def quick(cls) -> Length:
        return cls(5.0, 10.0, 1)


@dataclass(slots=True)
class Result:
    """The result of one run, or of several with different seeds."""

    order: str
    # Seconds; infinite without an answer.
    ttfts: dict[str, array[float]] = field(default_factory=dict)
    output_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    errors: int = 0

    def add(self, other: Result) -> None:
        for name, seen in other.ttfts.items():
            self.ttfts.setdefault(name, array("d")).extend(seen)
        self.output_tokens += other.output_tokens
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.seconds += other.seconds
        self.errors += other.errors

    def row(self) -> Row:
        hits = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None
        return Row(
            self.order,
            {name: times(seen) for name, seen in self.ttfts.items()},
            self.output_tokens / self.seconds,
            hits,
            self.errors,
        )


@dataclass(frozen=True, slots=True)
class Task:
    policy: str  # name of the order, with which `run_all` labels the task
    scenario: Scenario
    length: Length

    def run(self, line: TextIO | None = None) -> Result:
        """Simulate the scenario; `line` is not used. Raises the errors of `simulate`."""
        length = self.length
        until = length.warm_s + length.measured_s
        seen = _Window(self.policy, length.warm_s, until)
        simulate(self.scenario, Crowd(self.scenario.seed, until), seen)
        seen.result.seconds = length.measured_s
        return seen.result


class _Window:
    """Records the requests of the measured time."""

    def __init__(self, order: str, begin: float, end: float) -> None:
        self.result = Result(order)
        self._begin = begin
        self._end = end

    def ended(self, outcome: Outcome) -> None:
        arrival, result = outcome.arrival, self.result
        is_ok = outcome.reason is Reason.OK
        if self._begin <= arrival.at < self._end:
            ttft_s = outcome.ttft_s if is_ok else None
            seen = result.ttfts.setdefault(arrival.priority, array("d"))
            seen.append(inf if ttft_s is None else ttft_s)
            result.errors += not is_ok
        if is_ok and self._begin <= outcome.ended < self._end:
            result.output_tokens += arrival.output_tokens
            result.prompt_tokens += arrival.prompt_tokens
            result.cached_tokens += outcome.cached_tokens


def run(orders: Sequence[str], seed: int, jobs: int, length: Length) -> list[Row]:
    """Return one row per order. Raises the errors of `run_all`."""
    tasks = [
        Task(order, scenario(order, number), length)
        for order in orders
        for number in range(seed, seed + length.seeds)
    ]
    found: dict[str, Result] = {}
    for result in run_all(tasks, jobs, finished=show):
        found.setdefault(result.order, Result(result.order)).add(result)
    return [result.row() for result in found.values()]
