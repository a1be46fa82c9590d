"""The compared demands, and the task that simulates one of them with one seed.

Tasks run in parallel processes, and their results are stored, so a task has everything that
decides its result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from bench.plan.contestants import LEADS_S, Best, contests
from bench.plan.planner import forecast_week
from bench.plan.traffic import Bursts, seeded, with_bursts
from bench.plan.world import GPU, Kind, World

# The costs are the usual relation of prices. The reclaims are more frequent than those of most
# spot machines.
TWO_KINDS = (
    Kind("on-demand", least=1),
    Kind("spot", cost=0.35, most=8, reclaims_per_h=0.05),
)
LATE_H = 7.0  # hours by which the day of the second region begins later
SPILL = 0.3


@dataclass(frozen=True, slots=True)
class Case:
    """A demand. `bursts`: those of a trace, instead of the seeded ones."""

    name: str
    bursts: Bursts | None = None
    has_regions: bool = False  # whether there are two regions and two kinds of replicas

    def world(self, seed: int, lead_s: float) -> World:
        if self.has_regions:
            demands = {"eu": seeded(seed), "us": seeded(seed, "us", LATE_H)}
            return World(self.name, demands, lead_s, TWO_KINDS, SPILL, seed)
        demand = seeded(seed) if self.bursts is None else with_bursts(self.bursts, seed)
        return World(self.name, {"": demand}, lead_s, (GPU,), seed=seed)


WEEK_CASE = Case("week")
REGIONS_CASE = Case("two regions, spot", has_regions=True)


@dataclass(frozen=True, slots=True)
class Run:
    """The best of each contestant for each lead time, with one seed."""

    by_lead: dict[str, list[Best]]  # keys: name of the world


@dataclass(frozen=True, slots=True)
class Task:
    """A task of `router.lab.replay.workers`."""

    case: Case
    seed: int
    leads_s: tuple[float, ...] = LEADS_S

    @property
    def policy(self) -> str:
        """The label of the task in error messages."""
        return f"{self.case.name}, seed {self.seed}"

    @property
    def scenario(self) -> Task:
        return self

    @property
    def replicas(self) -> int:
        """Replicas for the highest demand."""
        world = self.case.world(self.seed, self.leads_s[0])
        return sum(map(world.peak, world.demands))

    def run(self, line: TextIO | None = None) -> Run:
        """Simulate all contestants; `line` is not used. Raises MissingExtra."""
        ahead = forecast_week(self.case.world(self.seed, max(self.leads_s)))
        found = {}
        for lead_s in self.leads_s:
            name = f"{self.case.name}, start {lead_s / 60.0:g} min"
            found[name] = contests(self.case.world(self.seed, lead_s), ahead)
        return Run(found)
