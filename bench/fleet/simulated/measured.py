"""A task that measures one scenario with one seed in a separate process.

Must never depend on what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TextIO, TypeVar

from bench.fleet.simulated.worlds import World
from router.lab.simulator.scenario import Scenario

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Measured(Generic[R]):
    """A task for `run_all`. `measure` must be picklable, such as a function of a module."""

    world: World
    seed: int
    measure: Callable[[World, int], R]  # simulates the scenario with the seed

    @property
    def policy(self) -> str:
        """The label of the task in error messages."""
        return self.world.name

    @property
    def scenario(self) -> Scenario:
        return self.world.scenario(self.seed)

    def run(self, line: TextIO | None = None) -> R:
        """Simulate and return the result. `line` is not used. Raises the errors of `measure`."""
        return self.measure(self.world, self.seed)
