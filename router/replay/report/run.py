"""One run and what it was of, and all runs of one replay. Plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from router.replay.report.summary import Summary
from router.replay.truth.judged import Row
from router.replay.truth.trust import Trust
from router.simulator.scenario import Scenario


class Place(NamedTuple):
    """Runs at the same place differ in their policy only, and can be compared."""

    replicas: int
    routers: int
    shared: bool

    def __str__(self) -> str:
        text = "1 replica" if self.replicas == 1 else f"{self.replicas:,} replicas"
        if self.routers == 1:
            return text
        return f"{text}, {self.routers} routers {'that share all' if self.shared else 'apart'}"


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one scenario."""

    policy: str  # its name as it was asked for, options included
    scenario: Scenario
    summary: Summary
    events: int = 0  # that the simulation went through
    policy_errors: int = 0  # choices that the policy failed to make; they were made at random
    judged: Sequence[Row] = ()  # its figures beside those of the log; () if that was not asked
    notes: Mapping[str, int] = field(default_factory=dict)  # what its traffic could not keep to
    wall_s: float = 0.0  # how long that took; differs from run to run, so in no table

    @property
    def routers(self) -> str:
        """How many routers, in words for a table."""
        scenario = self.scenario
        if scenario.routers == 1:
            return "1"
        return f"{scenario.routers} shared" if scenario.shared else f"{scenario.routers} apart"

    @property
    def place(self) -> Place:
        return Place(self.scenario.replicas, self.scenario.routers, self.scenario.shared)


@dataclass(frozen=True, slots=True)
class Replay:
    """All runs of one traffic, in the order they were asked for; never empty."""

    title: str  # of the page: what was replayed
    runs: Sequence[Run]
    facts: Sequence[tuple[str, str]] = ()  # what was simulated: (what, how), for a person
    calibration: Sequence[str] = ()  # how well the engine model fits, line by line
    when: str = ""  # the date of the replay, as a person writes it
    truth: Trust | None = None  # the logged fleet as configured, beside the log; None: no log

    def places(self) -> list[Place]:
        """Every place once, in the order in which they came."""
        return list(dict.fromkeys(run.place for run in self.runs))

    def at(self, place: Place) -> list[Run]:
        return [run for run in self.runs if run.place == place]

    def focus(self) -> Place:
        """The place that tells the policies apart best, by what share of requests is in the SLO.

        Of those with as many routers as the first run; where nothing differs, the first.
        """
        same = [place for place in self.places() if place[1:] == self.runs[0].place[1:]]

        def spread(place: Place) -> float:
            shares = [run.summary.all.attainment or 0.0 for run in self.at(place)]
            return max(shares) - min(shares)

        return max(same, key=spread)

    def twins(self) -> list[tuple[Run, Run]]:
        """Runs that differ in nothing but whether their routers share what they know: (not, do)."""
        shared = {
            (run.policy, run.scenario.replicas, run.scenario.routers): run
            for run in self.runs
            if run.scenario.shared and run.scenario.routers > 1
        }
        apart = [run for run in self.runs if not run.scenario.shared]
        return [
            (run, twin)
            for run in apart
            if (twin := shared.get((run.policy, run.scenario.replicas, run.scenario.routers)))
        ]
