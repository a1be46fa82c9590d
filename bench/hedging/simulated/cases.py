"""The goals of hedging, case by case, with and without hedging.

- *half*: utilisation 0.5, one attempt in twenty is ten times slower;
- *full*: like *half*, but at utilisation 0.9;
- *slow*: at 0.5 the whole fleet becomes three times as slow for a while, so that it is overloaded;
- *frozen*: at 0.5, no stragglers, one replica after the other stalls for half a minute. `calm` is
  the same without the stalls, for comparison;
- *mixed*: every second replica takes three times as long for everything, and one attempt in twenty
  is ten times slower; the load is half of what this fleet sustains.

The same seeds give both sides the same requests at the same times, and the same first attempts
straggle. Figures combine several seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import isfinite

from bench.findings.found import Found
from bench.hedging import goals
from bench.hedging.simulated import world
from bench.hedging.simulated.task import Class, Result, Task, play, pooled
from bench.overhead.goals import Verdict
from router.config.model import Hedging
from router.replay.report.table import Column, build
from router.simulator.scenario import Fault, Scenario, Straggling

OFF, ON = Hedging(policy="off"), Hedging()
WITHOUT, WITH = "without", "with"
WARM_S = 60.0  # seconds that are not counted: batches fill, the hedger learns
SLOW_FACTOR = 3.0
KIND_FACTOR = 3.0
BUDGET = ON.budget


@dataclass(frozen=True, slots=True)
class Length:
    """Amount of simulated traffic."""

    measured_s: float = 400.0
    seeds: int = 3
    replicas: int = world.REPLICAS
    freezes: int = 10
    freeze_s: float = 20.0
    slow_s: float = 60.0

    @classmethod
    def quick(cls) -> Length:
        return cls(20.0, 1, 8, 1, 10.0, 10.0)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    words: str
    load: float
    straggling: Straggling = world.STRAGGLING

    def faults(self, length: Length) -> tuple[Fault, ...]:
        if self.name == "slow":
            # The slow time is early enough for the backlog to be served before the run ends.
            at = WARM_S + length.measured_s / 4
            return tuple(
                Fault(
                    at=at,
                    replica=number,
                    kind="slow",
                    until=at + length.slow_s,
                    factor=SLOW_FACTOR,
                )
                for number in range(length.replicas)
            )
        if self.name == "mixed":
            return tuple(
                Fault(
                    at=0.0,
                    replica=number,
                    kind="slow",
                    until=10.0 * (WARM_S + length.measured_s),
                    factor=KIND_FACTOR,
                )
                for number in range(0, length.replicas, 2)
            )
        if self.name == "frozen":
            every_s = length.measured_s / length.freezes
            return tuple(
                Fault(
                    at=WARM_S + number * every_s,
                    replica=number,
                    kind="freeze",
                    until=WARM_S + number * every_s + length.freeze_s,
                )
                for number in range(length.freezes)
            )
        return ()


CASES = (
    Case("half", "5 % stragglers at 0.5", 0.5),
    Case("full", "5 % stragglers at 0.9", 0.9),
    Case("slow", f"5 % stragglers at 0.5, all replicas {SLOW_FACTOR:g} × slower for a while", 0.5),
    Case("frozen", "no stragglers at 0.5, one replica frozen", 0.5, Straggling()),
    Case("calm", "no stragglers at 0.5", 0.5, Straggling()),
    Case(
        "mixed",
        f"5 % stragglers at 0.33, every second replica {KIND_FACTOR:g} × slower",
        0.5 * (1.0 + 1.0 / KIND_FACTOR) / 2.0,
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    case: Case
    result: Result

    @property
    def urgent(self) -> Class:
        return self.result.of(world.URGENT)

    @property
    def other(self) -> Class:
        return self.result.of(world.OTHER)


def run(*, seed: int = 1, jobs: int = 1, length: Length | None = None) -> Found:
    """The table of the cases, and the verdict on each goal."""
    length = length or Length()
    rate = world.saturation(world.fleet(length.replicas))
    places = [
        (case, label, hedging, number)
        for case in CASES
        for label, hedging in ((WITHOUT, OFF), (WITH, ON))
        for number in range(seed, seed + length.seeds)
    ]
    results = iter(
        play(
            [task(case, label, hedging, rate, n, length) for case, label, hedging, n in places],
            jobs,
        )
    )
    rows = []
    for case in CASES:
        mine = [next(results) for one, *_ in places if one is case]
        rows += [Row(case, result) for result in pooled(mine).values()]
    at = {(row.case.name, row.result.label): row for row in rows}
    return Found(
        "Hedging on a simulated fleet, with and without",
        f"{length.replicas} replicas of an 8B model on an A100, routed by kv_aware; "
        f"{rate:.0f} requests/s saturate them. Unique prompts of 3,000 tokens (lognormal), "
        f"{world.URGENT_SHARE:.0%} of the requests and of the prefill tokens are of the class "
        f"{world.URGENT}. Settings are the defaults. Each row {length.seeds} runs of "
        f"{length.measured_s:g} s after {WARM_S:g} s that are not counted; both sides have the "
        "same arrivals, and the same first attempts straggle.",
        build(rows, columns(), group=lambda row: row.case.name),
        verdicts=judge(at),
        figures={"rows_by_case": [_document(row) for row in rows]},
    )


def task(case: Case, label: str, hedging: Hedging, rate: float, seed: int, length: Length) -> Task:
    scenario: Scenario = replace(
        world.hedged(world.fleet(length.replicas), hedging),
        straggling=case.straggling,
        faults=case.faults(length),
        seed=seed,
    )
    until = WARM_S + length.measured_s
    return Task(
        policy=label,
        scenario=scenario,
        traffic=partial(world.traffic, case.load * rate, until, seed),
        measure_from=WARM_S,
        measure_until=until,
    )


def columns() -> list[Column[Row]]:
    return [
        Column("case", "case", text=lambda row: row.case.words),
        Column("hedging", "hedging", text=lambda row: row.result.label),
        Column("requests", f"{world.URGENT}", "requests", lambda row: row.urgent.requests),
        *(
            Column(f"u{q}", f"TTFT p{q:g}", f"s, {world.URGENT}", partial(_urgent, q=q), "low")
            for q in (50, 99, 99.9)
        ),
        Column("most", "slowest", "s", lambda row: row.urgent.ttft(1.0), "low"),
        Column("o99", "TTFT p99", "s, others", lambda row: row.other.ttft(0.99), "low"),
        Column("hedged", "hedged", f"% of {world.URGENT}", _hedged),
        Column("won", "won", "% of copies", _won),
        Column("extra", "extra tokens", "% of all", lambda row: 100.0 * (row.result.extra or 0.0)),
    ]


def _urgent(row: Row, q: float) -> float | None:
    return row.urgent.ttft(q / 100.0)


def _hedged(row: Row) -> float | None:
    seen = row.urgent
    return 100.0 * seen.hedged / seen.requests if seen.requests else None


def _won(row: Row) -> float | None:
    seen = row.urgent
    return 100.0 * seen.won / seen.hedged if seen.hedged else None


def judge(at: dict[tuple[str, str], Row]) -> list[Verdict]:
    """All goals for a simulated fleet."""
    verdicts: list[Verdict] = []
    for case in CASES:
        if case.name == "calm":
            continue
        without, with_ = at[case.name, WITHOUT], at[case.name, WITH]
        p99, p99_with = without.urgent.ttft(0.99), with_.urgent.ttft(0.99)
        name = f"{case.name}: {world.URGENT}"
        if case.name == "half":
            note = without.urgent.chance
            verdicts.append(goals.cut(f"{name}, p99 TTFT", p99, p99_with, 0.6, note))
        elif case.name == "frozen":
            normal = at["calm", WITHOUT].urgent.ttft(0.99)
            slowest = with_.urgent.ttft(1.0)
            verdicts.append(
                goals.times(
                    f"{name}, slowest", slowest, normal, 2.0, "normal p99", _above(at, normal)
                )
            )
        else:
            note = without.urgent.chance
            verdicts.append(goals.kept(f"{name}, p99 TTFT", p99, p99_with, 0.02, note))
        verdicts.append(
            goals.kept(
                f"{case.name}: others, p99 TTFT",
                without.other.ttft(0.99),
                with_.other.ttft(0.99),
                0.03,
                without.other.chance,
            )
        )
        verdicts.append(
            goals.within(f"{case.name}: extra prefill tokens", with_.result.extra, BUDGET)
        )
    return verdicts


def _above(at: dict[tuple[str, str], Row], normal: float | None) -> str:
    """The number of values above the limit, on both sides."""
    if normal is None:
        return ""
    counts = [
        sum(ttft > 2.0 * normal for ttft in at["frozen", label].urgent.ttfts)
        for label in (WITHOUT, WITH)
    ]
    calm = sum(ttft > 2.0 * normal for ttft in at["calm", WITHOUT].urgent.ttfts)
    requests = at["frozen", WITH].urgent.requests
    return (
        f"above it: {counts[0]} of {requests:,} without, {counts[1]} with, {calm} without freezes"
    )


_QUANTILES = (50, 90, 99, 99.9, 100)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _document(row: Row) -> dict[str, object]:
    return {
        "case": row.case.name,
        "hedging": row.result.label,
        "extra": row.result.extra,
        **{
            name: {
                "requests": seen.requests,
                "hedged": seen.hedged,
                "won": seen.won,
                "ttft_s": {f"p{q:g}": _finite(seen.ttft(q / 100.0)) for q in _QUANTILES},
            }
            for name, seen in sorted(row.result.classes.items())
        },
    }
