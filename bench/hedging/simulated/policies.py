"""Every hedging policy on the same traffic: half load, one attempt in twenty ten times slower."""

from __future__ import annotations

from dataclasses import dataclass

from bench.fleet.simulated.report import Found
from bench.hedging.simulated import world
from bench.hedging.simulated.cases import CASES, Length, task
from bench.hedging.simulated.task import Class, Result, play, pooled
from router.config.model import Hedging
from router.simulator.report.table import Column, build

HALF = CASES[0]
NAMES = ("off", "fixed", "quantile", "adaptive", "immediate")


@dataclass(frozen=True, slots=True)
class Row:
    result: Result

    @property
    def urgent(self) -> Class:
        return self.result.of(world.URGENT)

    @property
    def other(self) -> Class:
        return self.result.of(world.OTHER)


def run(*, seed: int = 1, jobs: int = 1, length: Length | None = None) -> Found:
    """One row a policy."""
    length = length or Length()
    rate = world.saturation(world.fleet(length.replicas))
    results = play(
        [
            task(HALF, name, Hedging(policy=name), rate, number, length)
            for name in NAMES
            for number in range(seed, seed + length.seeds)
        ],
        jobs,
    )
    rows = [Row(result) for result in pooled(results).values()]
    return Found(
        "Hedging policies",
        f"{HALF.words}; each policy with its default options, fleet and traffic as above.",
        build(rows, _columns()),
    )


def _columns() -> list[Column[Row]]:
    return [
        Column("policy", "policy", text=lambda row: row.result.label),
        Column("mean", "TTFT mean", f"s, {world.URGENT}", lambda row: row.urgent.mean, "low"),
        Column("u50", "p50", "s", lambda row: row.urgent.ttft(0.5), "low"),
        Column("u99", "p99", "s", lambda row: row.urgent.ttft(0.99), "low"),
        Column("u999", "p99.9", "s", lambda row: row.urgent.ttft(0.999), "low"),
        Column("o99", "p99", "s, others", lambda row: row.other.ttft(0.99), "low"),
        Column(
            "hedged",
            "hedged",
            f"% of {world.URGENT}",
            lambda row: 100.0 * row.urgent.hedged / max(row.urgent.requests, 1),
        ),
        Column(
            "won",
            "won",
            "% of copies",
            lambda row: 100.0 * row.urgent.won / row.urgent.hedged if row.urgent.hedged else None,
        ),
        Column(
            "extra",
            "extra tokens",
            "% of all",
            lambda row: 100.0 * (row.result.extra or 0.0),
        ),
    ]
