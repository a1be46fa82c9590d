"""Compares all hedging policies with the same traffic: half load, one attempt in twenty is late."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from bench.findings.found import Found
from bench.hedging.simulated import world
from bench.hedging.simulated.world import Class, Result, Task, play
from router.config.model import Hedging
from router.core.text.table import Column, build

WAYS = {
    "off": Hedging(policy="off"),
    "fixed, 1 s": Hedging(policy="fixed", options={"delay_s": 1.0}),
    "fixed, 2 s": Hedging(policy="fixed", options={"delay_s": 2.0}),
    "quantile": Hedging(policy="quantile"),
    "adaptive": Hedging(),
    "immediate": Hedging(policy="immediate"),
}


@dataclass(frozen=True, slots=True)
class Row:
    result: Result

    @property
    def urgent(self) -> Class:
        return self.result.of(world.MOST_URGENT)

    @property
    def other(self) -> Class:
        return self.result.of(world.OTHER)


def run(*, seed: int = 1, jobs: int = 1, extent: world.Extent | None = None) -> Found:
    """Return a table with one row per policy."""
    extent = extent or world.Extent()
    rate = world.saturation(world.fleet(extent.replicas))
    results = play(
        [
            Task(
                policy=name,
                scenario=replace(world.hedged(world.fleet(extent.replicas), hedging), seed=seed),
                traffic=partial(world.traffic, world.LOAD * rate, extent.until_s, seed),
                measure_from=extent.warm_s,
                measure_until=extent.until_s,
            )
            for name, hedging in WAYS.items()
        ],
        jobs,
    )
    rows = [Row(result) for result in results]
    return Found(
        "Hedging policies",
        f"{extent.replicas} replicas without a queue, load {world.LOAD:g}, unique prompts of 3,000 "
        f"tokens; 5 % of the attempts reach their engine late, by nine times their prefill, while "
        f"the engine is free. {world.URGENT_SHARE:.0%} of the requests are of the class "
        f"{world.MOST_URGENT}; {rows[0].urgent.requests:,} of them in each row.",
        build(rows, _columns()),
    )


def _columns() -> list[Column[Row]]:
    return [
        Column("policy", "policy", text=lambda row: row.result.label),
        Column("mean", "TTFT mean", f"s, {world.MOST_URGENT}", lambda row: row.urgent.mean, "low"),
        Column("u50", "p50", "s", lambda row: row.urgent.ttft(0.5), "low"),
        Column("u99", "p99", "s", lambda row: row.urgent.ttft(0.99), "low"),
        Column("u999", "p99.9", "s", lambda row: row.urgent.ttft(0.999), "low"),
        Column("o99", "p99", "s, others", lambda row: row.other.ttft(0.99), "low"),
        Column(
            "hedged",
            "hedged",
            f"% of {world.MOST_URGENT}",
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
