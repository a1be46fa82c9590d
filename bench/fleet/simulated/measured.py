"""One scenario of a bench under one seed, measured in a process of its own.

Must never: know what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TextIO, TypeVar

from bench.fleet.simulated.worlds import World
from router.simulator.scenario import Scenario

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Measured(Generic[R]):
    """A task for `run_all`. `measure` must be picklable: a function of a module."""

    world: World
    seed: int
    measure: Callable[[World, int], R]  # simulates the world under the seed

    @property
    def policy(self) -> str:
        """The label of the task in error messages."""
        return self.world.name

    @property
    def scenario(self) -> Scenario:
        return self.world.scenario(self.seed)

    def run(self, line: TextIO | None = None) -> R:
        """Measure; `line` is not written to. Raises the errors of `measure`."""
        return self.measure(self.world, self.seed)
