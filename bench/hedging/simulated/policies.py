"""Every hedging policy on the same traffic: half load, one attempt in twenty ten times slower."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from bench.findings.found import Found
from bench.hedging.simulated import world
from bench.hedging.simulated.cases import CASES, WARM_S, Length
from bench.hedging.simulated.task import Class, Result, Task, play
from router.config.model import Hedging
from router.replay.report.table import Column, build

HALF = CASES[0]
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


def run(*, seed: int = 1, jobs: int = 1, length: Length | None = None) -> Found:
    """One row per policy."""
    length = length or Length()
    rate = world.saturation(world.fleet(length.replicas))
    until = WARM_S + length.measured_s
    results = play(
        [
            Task(
                policy=name,
                scenario=replace(world.hedged(world.fleet(length.replicas), hedging), seed=seed),
                traffic=partial(
                    world.traffic, HALF.load * rate, until, seed, urgent_class=world.MOST_URGENT
                ),
                measure_from=WARM_S,
                measure_until=until,
            )
            for name, hedging in WAYS.items()
        ],
        jobs,
    )
    rows = [Row(result) for result in results]
    return Found(
        "Hedging policies",
        f"{HALF.words}; {world.URGENT_SHARE:.0%} of the requests are of the class "
        f"{world.MOST_URGENT}, fleet and traffic otherwise as above; {rows[0].urgent.requests:,} "
        "of them in each row.",
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
