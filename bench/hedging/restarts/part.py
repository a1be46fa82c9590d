"""The part `restarts` of `hedgerow bench hedging`: the warm-up of replicas in a rolling restart.

Three contestants get the same traffic: no restart, the restarts without warm-up, and the restarts
with warm-up. The *lost hits* are the prompt tokens that were served from caches without the
restarts, and were not with them: the area between the two curves of cache hits over time. Goals are
judged by intervals over paired seeds, as in `bench.findings.intervals`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench.findings.found import Found
from bench.findings.judged import Judged, judged_ratio, judged_share
from bench.findings.stored import Store
from bench.hedging.restarts.roll import CASES, Case, Roll
from bench.hedging.restarts.run import Figures, Run
from bench.hedging.simulated import nodes
from router.config.model import Hedging
from router.core.text.table import Column, build

CALM, OFF, ON = "no restart", "off", "on"
WARM_UP = Hedging(warm_up_s=60.0)
LESS_LOST, OTHERS_SLOWER = 0.5, 0.03


@dataclass(frozen=True, slots=True)
class Row:
    """The runs of one contestant in one case, in the order of the seeds."""

    case: Case
    label: str
    figures: Sequence[Figures]
    calm: Sequence[Figures]  # the runs without a restart

    def each(self, of: Callable[[Figures], float]) -> list[float]:
        return [of(one) for one in self.figures]

    @property
    def lost(self) -> list[float]:
        """The lost hits of each run, in tokens."""
        pairs = zip(self.calm, self.figures, strict=True)
        return [float(calm.hit_tokens - one.hit_tokens) for calm, one in pairs]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the options of the part `simulated` apply (`--jobs`, `--seeds`, `--store`)."""


def run(args: argparse.Namespace) -> Sequence[Found]:
    """Return the table. Raises the errors of `Store.run`."""
    roll = Roll.quick() if args.quick else Roll()
    if args.seeds is not None:
        roll = replace(roll, seeds=args.seeds)
    rows: list[Row] = []
    store = Store(args.store, Figures)
    for case in CASES:
        rows += measure(case, roll, seed=args.seed, jobs=args.jobs, store=store, say=_say)
    return [_found(roll, rows)]


def measure(
    case: Case,
    roll: Roll,
    *,
    warm_up: Hedging = WARM_UP,
    seed: int = 1,
    jobs: int = 1,
    store: Store[Figures] | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Row]:
    """Run all contestants in one case. Raises the errors of `Store.run`."""
    store = store or Store(None, Figures)
    ways = ((CALM, Hedging()), (OFF, Hedging()), (ON, warm_up))
    found: dict[str, list[Figures]] = {label: [] for label, _ in ways}
    for number in range(seed, seed + roll.seeds):
        if say is not None:
            say(f"rolling restart, {case.name}, seed {number}")
        tasks = [
            Run(
                label,
                roll.scenario(case, hedging, number, restarts=label != CALM),
                number,
                case,
                roll,
            )
            for label, hedging in ways
        ]
        for label, one in zip(found, store.run(tasks, jobs), strict=True):
            found[label].append(one)
    return [Row(case, label, figures, found[CALM]) for label, figures in found.items()]


def _found(roll: Roll, rows: Sequence[Row]) -> Found:
    return Found(
        "Warm-up of restarted replicas",
        f"{roll.replicas} replicas, each an 8B model on an A100; all settings but "
        f"`hedging.warm_up` are the defaults. {nodes.GROUPS_EACH * roll.replicas} prefixes of "
        f"about 2,000 tokens, questions of 1,000; {roll.rate(CASES[0]):.1f} requests/s, half "
        f"of what saturates the fleet if every prefix is cached, where nothing else is said. "
        f"{roll.restarts} replicas restart, one "
        f"every {roll.every_s:g} s: each gets no request for {roll.drain_s:g} s, is down for "
        f"{roll.down_s:g} s, and comes back with an empty cache. With warm-up it may then get "
        f"copies for {WARM_UP.warm_up_s:g} s. Each row is the mean of {roll.seeds} seeds, from the "
        "first restart on. Lost hits are prompt tokens that were served from a cache without the "
        "restarts, and not with them. Verdicts are 95 % intervals of the paired seeds.",
        build(rows, _columns(), group=lambda row: row.case.name),
        verdicts=[verdict for case in CASES for verdict in judge(case, rows)],
        figures={
            "lost_tokens": [
                {"case": row.case.name, "warm_up": row.label, "seeds": row.lost} for row in rows
            ]
        },
    )


def judge(case: Case, rows: Sequence[Row]) -> list[Judged]:
    """Judge the goals of one case. `rows`: the rows of all contestants, also in other cases."""
    by_label = {row.label: row for row in rows if row.case is case}
    off, on = by_label[OFF], by_label[ON]
    name = case.name
    limit = 1.0 - LESS_LOST if case.halves else 1.0
    goal = f"−{LESS_LOST:.0%} or better" if case.halves else "+0 % at most"
    shares = zip(on.each(_copied), on.each(_prefilled), strict=True)
    return [
        judged_ratio(f"{name}: lost hits", goal, on.lost, off.lost, limit),
        *[
            judged_ratio(
                f"{name}: requests that are not copied, {quantile} TTFT",
                f"+{OTHERS_SLOWER:.0%} at most",
                on.each(of),
                off.each(of),
                1.0 + OTHERS_SLOWER,
            )
            for quantile, of in (("p50", _p50), ("p99", _p99))
        ],
        judged_share(
            f"{name}: tokens of copies",
            f"{WARM_UP.budget:.0%} at most",
            [copied / prefilled for copied, prefilled in shares],
            WARM_UP.budget,
        ),
    ]


def _p50(one: Figures) -> float:
    return one.other_p50


def _p99(one: Figures) -> float:
    return one.other_p99


def _prefilled(one: Figures) -> float:
    return float(one.prefilled_tokens)


def _copied(one: Figures) -> float:
    return float(one.copy_tokens)


def _hit_share(one: Figures) -> float:
    return one.hit_tokens / one.prompt_tokens


def _columns() -> list[Column[Row]]:
    def mean(of: Callable[[Figures], float], times: float = 1.0) -> Callable[[Row], float | None]:
        return lambda row: times * fmean(row.each(of))

    return [
        Column("case", "case", text=lambda row: f"{row.case.name}: {row.case.words}"),
        Column("way", "warm-up", text=lambda row: row.label),
        Column("requests", "requests", "per run", mean(lambda one: one.requests)),
        Column("failed", "failed", "per run", mean(lambda one: one.failed)),
        Column("hits", "hits", "% of tokens", mean(_hit_share, 100.0)),
        Column("lost", "lost hits", "1,000 tokens", lambda row: fmean(row.lost) / 1e3),
        Column("p50", "TTFT p50", "s, not copied", mean(_p50)),
        Column("p99", "p99", "s, not copied", mean(_p99)),
        Column("copies", "copies", "per run", mean(lambda one: one.copies)),
        Column("copied", "of copies", "1,000 tokens", mean(_copied, 1e-3)),
    ]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
