"""Simulates one order of the queue with one routing policy, at one load, on one window of a trace.

Must never count a request that arrived during the warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from bench.gain.contestants import Contestant
from bench.gain.score import Score
from bench.gain.world import World
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import simulate

WARM = 0.2  # share of the requests, from the first on, that are not counted


@dataclass(frozen=True, slots=True)
class Task:
    contestant: Contestant
    world: World
    load: int  # load in % of the rate that saturates the fleet
    seed: int
    requests: int

    @property
    def policy(self) -> str:
        return self.contestant.name

    @property
    def scenario(self) -> Scenario:
        return self.world.scenario(self.contestant, self.seed)

    def run(self, line: TextIO | None = None) -> Score:
        """Simulate and return the score; `line` is not used. Raises the errors of `simulate`."""
        seen = _Counted(Score(self.world.slos), int(WARM * self.requests))
        traffic = self.world.traffic(self.load, self.seed, self.requests)
        simulate(self.scenario, traffic, seen)
        return seen.score


class _Counted:
    """Counts a simulation's requests after the warm-up."""

    def __init__(self, score: Score, first: int) -> None:
        self.score = score
        self._first = first

    def ended(self, outcome: Outcome) -> None:
        if outcome.arrival.number >= self._first:
            self.score.count(outcome)
