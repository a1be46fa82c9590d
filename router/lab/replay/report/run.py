"""The result of one run, and of all runs of a replay. All values can be pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from router.lab.replay.report.summary import Summary
from router.lab.replay.truth.judged import Row, Trust
from router.lab.simulator.scenario import Scenario


class Setup(NamedTuple):
    """The fleet size and the routers of a run. Runs with the same setup differ only by policy."""

    replicas: int
    routers: int
    shared: bool

    def __str__(self) -> str:
        text = "1 replica" if self.replicas == 1 else f"{self.replicas:,} replicas"
        if self.routers == 1:
            return text
        return f"{text}, {self.routers} routers with {_state(self.shared)} state"


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one scenario."""

    policy: str  # the candidate's label, with options
    scenario: Scenario
    summary: Summary
    events: int = 0  # number of simulated events
    policy_errors: int = 0  # how often the policy failed to choose; a random replica was used
    judged: Sequence[Row] = ()  # the comparison with the log; (): no comparison
    # Number of requests by note of the closed-loop traffic.
    notes: Mapping[str, int] = field(default_factory=dict)
    wall_s: float = 0.0  # the duration in real time, in s; not in tables, because it varies

    @property
    def routers(self) -> str:
        """The number of routers as a text for tables, with `shared` or `separate` state."""
        scenario = self.scenario
        if scenario.routers == 1:
            return "1"
        return f"{scenario.routers} {_state(scenario.shared)}"

    @property
    def setup(self) -> Setup:
        return Setup(self.scenario.replicas, self.scenario.routers, self.scenario.shared)


@dataclass(frozen=True, slots=True)
class Replay:
    """All runs of one trace, in the order of the jobs. A reported replay has at least one run."""

    title: str  # the title of the page
    runs: Sequence[Run]
    # The conditions of the replay: pairs of a label and a text.
    facts: Sequence[tuple[str, str]] = ()
    calibration: Sequence[str] = ()  # lines about the fit of the engine model
    when: str = ""  # the date and time of the replay
    truth: Trust | None = None  # the comparison with the log; None: the trace is not a log

    def setups(self) -> list[Setup]:
        """The distinct setups, in the order of the runs."""
        return list(dict.fromkeys(run.setup for run in self.runs))

    def at(self, setup: Setup) -> list[Run]:
        return [run for run in self.runs if run.setup == setup]

    def focus(self) -> Setup:
        """Return the setup in which policies differ most in their share of requests within the SLO.

        Only setups with the same routers as the first run are compared. If all shares are equal,
        the first setup is returned.
        """
        same = [setup for setup in self.setups() if setup[1:] == self.runs[0].setup[1:]]

        def spread(setup: Setup) -> float:
            shares = [run.summary.all.attainment or 0.0 for run in self.at(setup)]
            return max(shares) - min(shares)

        return max(same, key=spread)

    def pairs(self) -> list[tuple[Run, Run]]:
        """Return pairs of runs that differ only in router state: (separate state, shared state)."""
        shared = {
            (run.policy, run.scenario.replicas, run.scenario.routers): run
            for run in self.runs
            if run.scenario.shared and run.scenario.routers > 1
        }
        separate = [run for run in self.runs if not run.scenario.shared]
        return [
            (run, other)
            for run in separate
            if (other := shared.get((run.policy, run.scenario.replicas, run.scenario.routers)))
        ]


def _state(shared: bool) -> str:
    return "shared" if shared else "separate"
