"""The part `goals` of `hedgerow bench priority`: judges goals by confidence intervals.

`Length`, `Case`, `Task`: the cases of the part `goals`. Each has a fleet, a traffic, and queues
that are compared.

In two cases, requests of the classes low and batch keep the fleet full, and requests of the classes
high and normal arrive in a Poisson process. In the case `backlog`, requests of every class and
every tenant wait all the time.

Must never depend on a goal.

`high_ttft`, `cost`, `high_before_normal`: judges the goals of priorities by confidence intervals:
met, missed or open. Pure.

Most goals are judged by `bench.findings.judged` from one value per seed. The bound of a wait is
judged by the worst run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TextIO

import msgspec

from bench.findings.found import Found
from bench.findings.intervals import noise
from bench.findings.judged import Judged, judged_mean, judged_ratio
from bench.findings.stored import Store, show
from bench.overhead.goals import Verdict
from bench.priority import traffic, traffic as law
from bench.priority.simulated.seen import QUANTILES, Run, Seen
from bench.priority.simulated.world import Crowd, fleet_scenario
from router.config.model import Classes, Config
from router.config.varied import varied
from router.core.text.table import Column, build
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


P50: Final = QUANTILES.index(0.5)
P99: Final = QUANTILES.index(0.99)
HIGH_P99_S: Final = 0.5
COST: Final = 0.05  # share by which the tokens/s without a queue may exceed those with the queue
HIGH_BELOW_NORMAL: Final = 0.5
UNFAIR: Final = 0.05  # maximum of 1 minus Jain's index

Runs = Sequence[Run]


def high_ttft(case: str, ours: Runs) -> Judged:
    """Judge the p99 TTFT of class high, in seconds."""
    values = [run.ttft_s["high"][P99] for run in ours if "high" in run.ttft_s]
    name, goal = f"{case}: high, TTFT p99", f"{HIGH_P99_S:g} s at most"
    return judged_mean(name, goal, values, HIGH_P99_S, "{:.2f}")


def cost(case: str, ours: Runs, unqueued: Runs) -> Judged:
    """Judge the output tokens/s without a queue, divided by those with the queue.

    The noise is the difference between two halves of the runs without a queue.
    """
    pairs = _paired(ours, unqueued)
    theirs = [without.tokens_s for _, without in pairs]
    half = len(theirs) // 2
    own = noise(theirs[:half], theirs[half : 2 * half]) if half else 0.0
    return judged_ratio(
        f"{case}: tokens/s, no queue over ours",
        f"+{COST:.0%} at most",
        theirs,
        [mine.tokens_s for mine, _ in pairs],
        1.0 + COST,
        own,
    )


def high_before_normal(case: str, ours: Runs) -> Judged:
    """Judge the median TTFT of class high, divided by that of class normal; both have a backlog."""
    both = [run for run in ours if "high" in run.ttft_s and "normal" in run.ttft_s]
    return judged_ratio(
        f"{case}: TTFT p50, high over normal",
        f"−{HIGH_BELOW_NORMAL:.0%} or better",
        [run.ttft_s["high"][P50] for run in both],
        [run.ttft_s["normal"][P50] for run in both],
        1.0 - HIGH_BELOW_NORMAL,
    )


def fairness(case: str, ours: Runs) -> Judged:
    """Judge 1 minus Jain's index of the tenants that always wait, for the least fair class."""
    values = [1.0 - min(run.jain.values()) for run in ours if run.jain]
    name = f"{case}: 1 - Jain's index, least fair class"
    return judged_mean(name, f"{UNFAIR:g} at most", values, UNFAIR, "{:.3f}")


def starvation(case: str, ours: Runs, bounds_s: Mapping[str, float]) -> Verdict:
    """Judge the longest wait of any class, divided by the class's starvation bound.

    The bound applies to every run, so the goal is missed if one run exceeds it.
    """
    title, goal = f"{case}: longest wait over its bound", "1 at most"
    shares = [
        (wait / bounds_s[name], name) for run in ours for name, wait in run.longest_wait_s.items()
    ]
    if not shares:
        return Verdict(title, goal, 1.0, None, "nothing to compare")
    worst, of = max(shares)
    return Verdict(title, goal, 1.0, worst, of, f"{worst:.2f} at worst")


def _paired(ours: Runs, theirs: Runs) -> list[tuple[Run, Run]]:
    by_seed = {run.seed: run for run in theirs}
    return [(run, by_seed[run.seed]) for run in ours if run.seed in by_seed]


SEEDS: Final = 10
_Row = tuple[str, str, list[Run]]  # (name of the case, name of the queue configuration, its runs)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("goals")
    group.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="default: 10")
    group.add_argument(
        "--runs", metavar="FILE", type=Path, help="keep finished runs here, to continue later"
    )


def run(args: argparse.Namespace, orders: Sequence[str]) -> Found:
    """Judge the goals; `orders` is not used.

    Raises OSError, ValueError if the file does not contain runs, and the errors of `run_all`.
    """
    length = Length(10.0, 20.0) if args.quick else Length()
    seeds = min(2, args.seeds) if args.quick else args.seeds
    tasks = [
        Task(case, contestant, seed, length)
        for case in CASES
        for contestant in case.contestants
        for seed in range(args.seed, args.seed + seeds)
    ]
    runs = Store(args.runs, Run).run(tasks, args.jobs, show)
    return found(runs, length)


def found(runs: Sequence[Run], length: Length) -> Found:
    rows = [
        (case.name, contestant, _of(runs, case.name, contestant))
        for case in CASES
        for contestant in case.contestants
    ]
    return Found(
        "Priorities: the goals, judged by intervals over seeds",
        words(length),
        build(rows, _columns(), group=lambda row: row[0]),
        remarks=[
            f"! {run.case}, {run.contestant}, seed {run.seed}: {run.errors} requests failed"
            for run in runs
            if run.errors
        ],
        verdicts=judge(runs),
        figures={"runs": [asdict(run) for run in runs]},
    )


def judge(runs: Sequence[Run]) -> list[Verdict]:
    """Judge every goal for the queue's default settings."""
    verdict: list[Verdict] = []
    for case in (SATURATED, LARGE):
        ours = _of(runs, case.name, SHIPPED)
        verdict.append(high_ttft(case.name, ours))
        verdict.append(cost(case.name, ours, _of(runs, case.name, NONE)))
    name, ours = BACKLOG.name, _of(runs, BACKLOG.name, SHIPPED)
    verdict.append(high_before_normal(name, ours))
    verdict.append(fairness(name, ours))
    verdict.append(starvation(name, ours, BOUNDS_S))
    return verdict


def words(length: Length) -> str:
    """Describe the cases as text."""
    fleets = "; ".join(
        f"{fleet.name}: {fleet.hardware} with {fleet.kv_tokens:,} tokens of KV cache each"
        for fleet in (traffic.SMALL, traffic.LARGE)
    )
    bounds = ", ".join(f"{name} {bound:g} s" for name, bound in BOUNDS_S.items())
    return (
        f"{fleets}; first come first served within an engine. Saturated: 1.5 clients per slot, a "
        "quarter of them of low and the others of batch, each send one request after the other; "
        f"high and normal come by themselves. Backlog: {BACKLOG.mix.clients} clients of every "
        f"class, so that each tenant always waits; starvation bounds {bounds}. {traffic.kinds()} "
        "Routed by kv_aware; the configuration as shipped. Times and waits are means over the "
        f"seeds; each run {length.measured_s:g} s after {length.warm_s:g} s that are not counted."
    )


def _of(runs: Sequence[Run], case: str, contestant: str) -> list[Run]:
    return [run for run in runs if (run.case, run.contestant) == (case, contestant)]


def _columns() -> list[Column[_Row]]:
    shown: list[Column[_Row]] = [
        Column("case", "case", text=lambda row: row[0]),
        Column("queue", "queue", text=lambda row: row[1]),
        Column("seeds", "seeds", "", lambda row: len(row[2])),
    ]
    for name in traffic.CLASSES:
        shown += [_ttft(name, place) for place in range(len(QUANTILES))]
    shown.append(Column("tokens", "output", "tokens/s", _tokens_s, "high"))
    for name in traffic.CLASSES:
        shown += [_longest_wait(name), _jain(name)]
    return shown


def _tokens_s(row: _Row) -> float | None:
    return _mean([run.tokens_s for run in row[2]])


def _ttft(name: str, place: int) -> Column[_Row]:
    def value(row: _Row) -> float | None:
        return _mean([run.ttft_s[name][place] for run in row[2] if name in run.ttft_s])

    q = QUANTILES[place]
    return Column(f"{name}_{q}", f"TTFT p{100 * q:g}", f"s, {name}", value, "low")


def _longest_wait(name: str) -> Column[_Row]:
    def value(row: _Row) -> float | None:
        return max((run.longest_wait_s.get(name, 0.0) for run in row[2]), default=None)

    return Column(f"{name}_wait", "longest wait", f"s, {name}", value)


def _jain(name: str) -> Column[_Row]:
    def value(row: _Row) -> float | None:
        return _mean([run.jain[name] for run in row[2] if name in run.jain])

    return Column(f"{name}_jain", "Jain's index", name, value, "high")


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
