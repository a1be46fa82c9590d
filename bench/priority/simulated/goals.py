"""The part `goals` of `hedgerow bench priority`: judges goals by confidence intervals."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Final

from bench.findings.found import Found
from bench.findings.stored import Store, show
from bench.overhead.goals import Verdict
from bench.priority import traffic
from bench.priority.simulated import verdicts
from bench.priority.simulated.contests import (
    BACKLOG,
    BOUNDS_S,
    CASES,
    LARGE,
    NONE,
    SATURATED,
    SHIPPED,
    Length,
    Task,
)
from bench.priority.simulated.seen import QUANTILES, Run
from router.core.text.table import Column, build

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
        verdict.append(verdicts.high_ttft(case.name, ours))
        verdict.append(verdicts.cost(case.name, ours, _of(runs, case.name, NONE)))
    name, ours = BACKLOG.name, _of(runs, BACKLOG.name, SHIPPED)
    verdict.append(verdicts.high_before_normal(name, ours))
    verdict.append(verdicts.fairness(name, ours))
    verdict.append(verdicts.starvation(name, ours, BOUNDS_S))
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
