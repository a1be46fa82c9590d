"""Runs every case several times over HTTP and in the simulator, and compares the figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from bench.fleet.engines import PROFILE, SPEED
from bench.fleet.run import LATE_S, Stage
from bench.fleet.script import Script
from bench.fleet.truth import measured, simulated
from bench.fleet.truth.cases import Case, idle
from bench.fleet.truth.figures import KINDS, TIMES, Kind, compare, figures, late_p99_s, offset_s
from bench.fleet.truth.rows import Row, Truth
from bench.overhead.cli import machine
from router.lab.overhead.processes import Orderly, Placement

IDLE = 24  # number of requests to an idle fleet, one after the other
# Seconds; needed as an argument, but no printed figure of an idle fleet depends on it.
IDLE_SLO_S = 1.0
# A run is discarded if other processes used this many CPUs more than in the quietest run.
QUIET = 0.25

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Number of runs of each case, and their seeds."""

    repeats: int = 3  # number of runs over HTTP
    seeds: int = 15  # number of simulated runs
    seed: int = 1  # seed of the scripts and of the first simulated run


def compare_all(cases: Sequence[Case], plan: Plan, placement: Placement, say: Say) -> Truth:
    """Compare the cases (at least one). Raises PeerError, FleetError, and errors of `simulate`."""
    with Orderly("bench.fleet.load", cpus=placement.others) as load:
        comparison = _Comparison(plan, placement, load, say)
        for case in cases:
            workload = case.prepare(plan.seed)
            comparison.add(case.name, case, workload.script, workload.slo_s)
        alone = idle(IDLE, plan.seed)
        found = comparison.add("one at a time", cases[0], alone, IDLE_SLO_S, TIMES)
    world = simulated.scenario(cases[0].spec, cases[0].policy, plan.seed)
    still = simulated.play_in(world, alone)
    offsets = [late for one in found if (late := offset_s(one.played, still)) is not None]
    return Truth(
        title="Simulated against measured",
        when=f"{datetime.now():%Y-%m-%d %H:%M}",
        rows=tuple(comparison.rows),
        offset_ms=median(offsets) * 1e3 if offsets else None,
        notes=(_about(plan, placement), *comparison.notes, *simulated.differences(world)),
    )


def _about(plan: Plan, placement: Placement) -> str:
    here = ", ".join(f"{name} {value}" for name, value in machine(placement).items())
    return (
        f"Emulated engines (timing profile {PROFILE}, {SPEED:g} times as fast), over HTTP behind "
        "Hedgerow, and the same simulated: what is compared is what fleet and router make of the "
        f"engine model, not the model. Medians of up to {plan.repeats} runs over HTTP and of "
        f"{plan.seeds} seeds of the simulation; in brackets their ranges. {here}."
    )


class _Comparison:
    """Runs the cases, and collects the rows and notes of the report."""

    def __init__(self, plan: Plan, placement: Placement, load: Orderly, say: Say) -> None:
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self._plan = plan
        self._placement = placement
        self._load = load
        self._say = say

    def add(
        self, name: str, case: Case, script: Script, slo_s: float, kinds: Sequence[Kind] = KINDS
    ) -> list[measured.Run]:
        """Run a case over HTTP and in the simulator. Return the runs over HTTP that are not
        discarded.
        """
        plan, spec = self._plan, case.spec
        stage = Stage(spec, self._placement, self._load)
        self._say(name)
        found = []
        for number in range(plan.repeats):
            one = measured.play(stage, script, case.policy)
            self._say(
                f"  run {number + 1} of {plan.repeats}; others used {one.others_cpu:.2f} CPUs"
            )
            found.append(one)
        counted = quiet(found)
        played = [
            simulated.play(script, spec, case.policy, plan.seed + n) for n in range(plan.seeds)
        ]
        self.rows += compare(
            name,
            [figures(one.played, slo_s) for one in counted],
            [figures(one, slo_s) for one in played],
            kinds,
        )
        self._note(name, counted, len(found))
        return counted

    def _note(self, name: str, counted: Sequence[measured.Run], of: int) -> None:
        """Add notes on disturbances of the runs over HTTP: other work and late requests."""
        busy = [one.others_cpu for one in counted]
        self.notes.append(
            f"{name}: {len(counted)} of {of} runs counted; others used {min(busy):.2f} to "
            f"{max(busy):.2f} CPUs meanwhile."
        )
        late = max(late_p99_s(one.played) for one in counted)
        if late > LATE_S:
            self.notes.append(f"{name}: p99 of requests went out {late * 1e3:.0f} ms late.")


def quiet(found: Sequence[measured.Run]) -> list[measured.Run]:
    """The runs in which other processes used at most QUIET CPUs more than in the quietest run."""
    limit = min(one.others_cpu for one in found) + QUIET
    return [one for one in found if one.others_cpu <= limit]
