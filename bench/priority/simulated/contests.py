"""The cases of the part `goals`. Each has a fleet, a traffic, and queues that are compared.

In two cases, requests of the classes low and batch keep the fleet full, and requests of the classes
high and normal arrive in a Poisson process. In the case `backlog`, requests of every class and
every tenant wait all the time.

Must never depend on a goal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TextIO

import msgspec

from bench.priority import traffic as law
from bench.priority.simulated.seen import Run, Seen
from bench.priority.simulated.world import Crowd, fleet_scenario
from router.config.model import Classes, Config
from router.config.varied import varied
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import simulate

SHIPPED: Final = "as shipped"
NONE: Final = "no queue"
# Queues that miss goals on purpose, for the tests that check that goals can be missed.
NO_CLASSES: Final = "one line"
STARVING: Final = "strict, no bound"
_NEVER_S: Final = 1e6

# Starvation bounds in the case `backlog`: the longest wait of each class, in seconds. The default
# bounds of low and batch are longer than a run, so no order could exceed them.
BOUNDS_S: Final[Mapping[str, float]] = {
    "critical": 5.0,
    "high": 30.0,
    "normal": 90.0,
    "low": 120.0,
    "batch": 150.0,
}
_QUEUES: Final[Mapping[str, Mapping[str, Any]]] = {
    SHIPPED: {},
    NONE: {"enabled": False},
    NO_CLASSES: {"policy": "fifo", "order": "together"},
    STARVING: {"order": "strict", "batch_becomes_normal_after_s": 0.0},
}


@dataclass(frozen=True, slots=True)
class Length:
    """Lengths of a run in seconds."""

    warm_s: float = 60.0
    measured_s: float = 200.0


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    fleet: law.Fleet
    mix: law.Mix
    contestants: tuple[str, ...]
    is_backlog: bool = False


SATURATED: Final = Case(law.SMALL.name, law.SMALL, law.saturation(law.SMALL), (SHIPPED, NONE))
LARGE: Final = Case(law.LARGE.name, law.LARGE, law.saturation(law.LARGE), (SHIPPED, NONE))
BACKLOG: Final = Case(
    f"backlog, {law.SMALL.name}", law.SMALL, law.backlog(law.SMALL), (SHIPPED,), True
)
CASES: Final = (SATURATED, LARGE, BACKLOG)


def configured(case: Case, contestant: str) -> Config:
    """Return the default configuration with this queue and the case's bounds."""
    config = varied(queue=_QUEUES[contestant])
    if not case.is_backlog:
        return config
    bounds = dict.fromkeys(BOUNDS_S, _NEVER_S) if contestant == STARVING else BOUNDS_S
    classes = {
        name: msgspec.structs.replace(own, starvation_s=bounds[name])
        for name, own in config.classes.by_name.items()
    }
    return varied(config, classes=Classes(**classes))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Task:
    """One simulation. `policy` and `scenario` are needed by `run_all`."""

    case: Case
    contestant: str
    seed: int
    length: Length

    @property
    def policy(self) -> str:
        return self.contestant

    @property
    def scenario(self) -> Scenario:
        return fleet_scenario(self.case.fleet, configured(self.case, self.contestant), self.seed)

    def run(self, line: TextIO | None = None) -> Run:
        """Simulate and return the figures; `line` is not used. Raises the errors of `simulate`."""
        until = self.length.warm_s + self.length.measured_s
        seen = Seen(self.length.warm_s, until)
        crowd = Crowd(self.seed, until, self.case.fleet, self.case.mix)
        simulate(self.scenario, crowd, seen)
        return seen.run(self.case.name, self.contestant, self.seed)
