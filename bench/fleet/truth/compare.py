"""Runs every case several times over HTTP and in the simulator, and compares the figures.

`Case`: the cases that are simulated and run over HTTP: small workloads on small fleets, and single
requests on an idle fleet.

`Run`: plays a script over HTTP, with fresh emulated engines and a fresh Hedgerow.

Also measures how much CPU other processes used, because other work distorts the figures most.

`report_text`, `markdown`: formats a comparison as a text or Markdown table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic, process_time
from typing import Any

from bench.fleet import contestants, engines, run, workloads
from bench.fleet.engines import PROFILE, SPEED, Spec
from bench.fleet.report import aligned, markdown_table
from bench.fleet.run import LATE_S, Stage
from bench.fleet.script import Conversation, Script, Turn, text
from bench.fleet.truth import simulated
from bench.fleet.truth.figures import (
    KINDS,
    TIMES,
    Kind,
    Range,
    Row,
    Truth,
    compare,
    figures,
    late_p99_s,
    offset_s,
)
from bench.overhead.cli import machine
from router.core.text.table import number
from router.lab.overhead import cpu
from router.lab.overhead.processes import Orderly, Placement
from router.lab.overhead.routers import Running, Site
from router.lab.replay.truth.judged import error_of, error_text

LOAD = 0.7  # requests/s as a share of the rate at which the fleet saturates without cache hits
OVERLOAD = 1.3
# Shared prefixes per replica; the KV cache of an engine is as large as in the fleet bench.
GROUPS_EACH = 18
SIZE = workloads.Size(users=5, chat_warm_s=4.0, chat_s=14.0, unique_warm_s=2.0, unique_s=14.0)
_IDLE_EVERY_S = 0.4
_IDLE_PROMPTS = (200, 4000)  # minimum and maximum tokens of a prompt
_IDLE_OUTPUT = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One workload on one fleet."""

    workload: str  # a key of `workloads.WORKLOADS`
    replicas: int
    load: float
    policy: str = "kv_aware"

    @property
    def name(self) -> str:
        return f"{self.workload}, {self.replicas} replicas, {self.load:.0%} load, {self.policy}"

    @property
    def spec(self) -> Spec:
        return Spec(count=self.replicas, groups=GROUPS_EACH * self.replicas)

    def prepare(self, seed: int) -> run.Workload:
        spec = self.spec
        size = workloads.Size(
            spec.groups,
            SIZE.users,
            SIZE.chat_warm_s,
            SIZE.chat_s,
            SIZE.unique_warm_s,
            SIZE.unique_s,
        )
        return run.prepare(self.workload, self.load, seed, size, spec)


# If routing is partly random, two runs over HTTP differ as much as a run and its simulation. Round
# robin is not random; the error of its cases comes from the engine model and from the transport of
# tokens.
CASES = {
    "chat": Case("chat", 4, LOAD),
    "shared": Case("shared", 4, LOAD),
    "unique": Case("unique", 2, LOAD),
    "turns": Case("unique", 2, LOAD, "round_robin"),
    # Shows the maximum throughput of a fleet.
    "overload": Case("unique", 2, OVERLOAD, "round_robin"),
}


def idle(count: int, seed: int) -> Script:
    """Return a script of random lengths. Each request is sent after the previous one has ended."""
    rng = Random(f"idle {seed}")
    lengths = [rng.randint(*_IDLE_PROMPTS) for _ in range(count)]
    conversations = tuple(
        Conversation(
            (number + 1) * _IDLE_EVERY_S,
            "",
            (Turn(text(rng, tokens, f"{rng.getrandbits(64):016x}"), _IDLE_OUTPUT),),
        )
        for number, tokens in enumerate(lengths)
    )
    return Script(conversations, 0.0, (count + 1) * _IDLE_EVERY_S)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run over HTTP."""

    played: dict[str, Any]  # the result of `Player.play`
    others_cpu: float  # CPUs used by processes other than router, engines and load generator
    router_cpu: float  # CPUs that the router used on average
    engines_cpu: float


def play(stage: Stage, script: Script, policy: str) -> Run:
    """Play the script. Raises PeerError or FleetError if Hedgerow or the engines do not start."""
    with tempfile.TemporaryDirectory(prefix="hedgerow-truth-") as name:
        folder = Path(name)
        log = folder / "engines.log"
        with engines.Engines(stage.spec, stage.placement.others, log=log) as fleet:
            site = Site(folder, fleet.ports, stage.placement)
            with Running(contestants.hedgerow(policy)(site)) as peer:
                before, began = _Used(peer.pid, fleet.pid), monotonic()
                played = stage.play(script, peer.port, fleet.urls)
                seconds = monotonic() - began
                after = _Used(peer.pid, fleet.pid)
    router = cpu.spent_s(before.router, after.router) / seconds
    modelled = cpu.spent_s(before.engines, after.engines) / seconds
    own = (after.own_s - before.own_s) / seconds + played["cpu_share"]
    total = (after.machine_s - before.machine_s) / seconds
    return Run(played, max(total - router - modelled - own, 0.0), router, modelled)


class _Used:
    """CPU time in seconds that the machine, this process, the router and the engines have used so
    far.
    """

    def __init__(self, router: int, fleet: int) -> None:
        self.machine_s = cpu.machine_busy_s()
        self.own_s = process_time()
        self.router = cpu.read(cpu.tree(router))
        self.engines = cpu.read([fleet])


_HEAD = ("", "unit", "measured", "", "simulated", "", "error")
_BEYOND = "beyond HTTP"


def report_text(truth: Truth) -> str:
    lines = [f"{truth.title}, {truth.when}"]
    for workload, cells in _tables(truth):
        lines += ["", workload, *aligned(cells, 2)]
    return "\n".join([*lines, "", *_remarks(truth), ""])


def markdown(truth: Truth) -> str:
    lines = [f"{truth.title}, {truth.when}."]
    for workload, cells in _tables(truth):
        lines += ["", f"**{workload}**", "", *markdown_table(cells, 2)]
    return "\n".join([*lines, "", *(f"- {line}" for line in _remarks(truth)), ""])


def _tables(truth: Truth) -> list[tuple[str, list[list[str]]]]:
    found = []
    for workload in dict.fromkeys(row.workload for row in truth.rows):
        rows = [row for row in truth.rows if row.workload == workload]
        head = [*_HEAD, *([_BEYOND] if truth.offset_ms is not None else [])]
        found.append((workload, [head, *(_cells(row, truth.offset_ms) for row in rows)]))
    return found


def _cells(row: Row, offset_ms: float | None) -> list[str]:
    cells = [
        row.name,
        row.unit,
        number(row.measured),
        _range(row.measured_range),
        number(row.simulated),
        _range(row.simulated_range),
        row.error_text,
    ]
    if offset_ms is not None:
        is_late = row.name.startswith("TTFT") and row.simulated is not None
        late = row.simulated + offset_ms if is_late and row.simulated is not None else None
        cells.append(error_text(error_of(row.measured, late), row.unit) if is_late else "")
    return cells


def _range(given: Range | None) -> str:
    return "" if given is None else f"({number(given[0])}..{number(given[1])})"


def _remarks(truth: Truth) -> list[str]:
    lines = list(truth.notes)
    if truth.offset_ms is not None:
        lines.insert(
            0,
            f"HTTP's own share of a TTFT (client, router, event loops; median of single requests "
            f"on an idle fleet, measured less simulated): {truth.offset_ms:.2f} ms. "
            f"{_BEYOND!r} is the error with it added to the simulated TTFT.",
        )
    return lines


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
    ) -> list[Run]:
        """Run a case over HTTP and in the simulator. Return the runs over HTTP that are not
        discarded.
        """
        plan, spec = self._plan, case.spec
        stage = Stage(spec, self._placement, self._load)
        self._say(name)
        found = []
        for repeat in range(plan.repeats):
            one = play(stage, script, case.policy)
            self._say(
                f"  run {repeat + 1} of {plan.repeats}; others used {one.others_cpu:.2f} CPUs"
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

    def _note(self, name: str, counted: Sequence[Run], of: int) -> None:
        """Add notes on disturbances of the runs over HTTP: other work and late requests."""
        busy = [one.others_cpu for one in counted]
        self.notes.append(
            f"{name}: {len(counted)} of {of} runs counted; others used {min(busy):.2f} to "
            f"{max(busy):.2f} CPUs meanwhile."
        )
        late = max(late_p99_s(one.played) for one in counted)
        if late > LATE_S:
            self.notes.append(f"{name}: p99 of requests went out {late * 1e3:.0f} ms late.")


def quiet(found: Sequence[Run]) -> list[Run]:
    """The runs in which other processes used at most QUIET CPUs more than in the quietest run."""
    limit = min(one.others_cpu for one in found) + QUIET
    return [one for one in found if one.others_cpu <= limit]
