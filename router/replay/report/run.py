"""The result of one run, and all runs of a replay. Plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from router.replay.report.summary import Summary
from router.replay.truth.judged import Row
from router.replay.truth.trust import Trust
from router.simulator.scenario import Scenario


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
    events: int = 0  # events of the simulation
    policy_errors: int = 0  # failed choices of the policy; a random replica was used instead
    judged: Sequence[Row] = ()  # the comparison with the log; (): there was no comparison
    notes: Mapping[str, int] = field(default_factory=dict)  # the notes of closed-loop traffic
    wall_s: float = 0.0  # the duration in real time; not in tables, because repetitions differ

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
    """All runs of one traffic, in the order of the jobs; at least one when it is reported."""

    title: str  # the title of the page
    runs: Sequence[Run]
    facts: Sequence[tuple[str, str]] = ()  # the conditions: pairs of a label and a text
    calibration: Sequence[str] = ()  # lines about the fit of the engine model
    when: str = ""  # the date and time of the replay
    truth: Trust | None = None  # the comparison with the log; None: the trace is not a log

    def setups(self) -> list[Setup]:
        """The distinct setups, in the order of the runs."""
        return list(dict.fromkeys(run.setup for run in self.runs))

    def at(self, setup: Setup) -> list[Run]:
        return [run for run in self.runs if run.setup == setup]

    def focus(self) -> Setup:
        """The setup in which the share of requests within the SLO differs most between policies.

        Only setups with the same routers as the first run; if nothing differs, the first setup.
        """
        same = [setup for setup in self.setups() if setup[1:] == self.runs[0].setup[1:]]

        def spread(setup: Setup) -> float:
            shares = [run.summary.all.attainment or 0.0 for run in self.at(setup)]
            return max(shares) - min(shares)

        return max(same, key=spread)

    def pairs(self) -> list[tuple[Run, Run]]:
        """Pairs (separate state, shared state) of runs that are otherwise the same."""
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
