"""llm-d's benchmark from low load to overload: from which load on does prefix affinity help?

Source: llm-d.ai/blog/kvcache-wins-you-can-see (24 Sep 2025): 8 pods of 307,328 tokens of KV cache,
150 customers with a prefix of 6,000 tokens and 5 users each, questions of 1,200 tokens and answers
of 1,000 tokens. With one question per user, the customers' prefixes and questions need 73 % of the
fleet's KV cache. The source measured only overload; this bench simulates several shares of the
fleet's capacity.

*Capacity* is the highest rate at which the best policy, with warm caches, still keeps 90 % of the
requests within the SLO (what DistServe, OSDI'24, calls goodput). Capacity is found by simulation:
the rate is raised, and a policy is dropped when it fails at a rate that another policy sustains.

First, one request of every customer fills the caches; then requests arrive in a Poisson process.
Requests are counted after `Length.fills_s` more seconds, when the engines' batches are full. In
overload, waits grow for as long as the run lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.findings.found import Found
from bench.fleet.simulated import oracle
from bench.fleet.simulated.ladder import highest
from bench.fleet.simulated.task import Result, Task, play
from bench.fleet.simulated.worlds import LLMD, Warmed, cold_rate, routed
from bench.overhead.goals import Verdict
from router.core.text.table import Column, build
from router.lab.replay.report.slo import Slo

DEFAULT = "kv_aware"
SLO = Slo(2.0, 0.1)
# Capacity is the rate at which this share of the requests is within the SLO (DistServe).
ENOUGH = 0.9
SHOWN = (50, 70, 90, 110)  # loads in the table, in % of capacity
CURVE = tuple(range(20, 140, 10))
_SIZE = (7200.0, 1000)


@dataclass(frozen=True, slots=True)
class Length:
    """Lengths of a run in seconds of virtual time."""

    fills_s: float = 120.0  # not counted: the batches fill, as answers take about a minute
    measured_s: float = 400.0

    @classmethod
    def quick(cls) -> Length:
        return cls(10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Point:
    """The result of one policy at one load."""

    load: int  # load in % of the fleet's capacity
    rate: float  # requests/s
    result: Result

    @property
    def policy(self) -> str:
        return self.result.policy

    @property
    def goodput(self) -> float:
        """Requests/s that were answered within the SLO."""
        return self.rate * self.result.kept


def run(
    policies: Sequence[str],
    *,
    seed: int = 1,
    jobs: int = 1,
    length: Length | None = None,
    loads: Sequence[int] = CURVE,
    precision: float = 0.01,
) -> tuple[Found, list[Point]]:
    """Return the table of the loads in SHOWN, and the results at all loads for the plots."""
    length = length or Length()
    capacity, best = find_capacity(policies, seed, jobs, length, precision)
    wanted = sorted({*loads, *SHOWN})
    places = [(load, load / 100 * capacity, policy) for load in wanted for policy in policies]
    results = play([task(policy, rate, seed, length) for _, rate, policy in places], jobs)
    points = [
        Point(load, rate, result) for (load, rate, _), result in zip(places, results, strict=True)
    ]
    method = (
        f"{len(points)} runs of {length.measured_s:g} s on {LLMD.replicas} replicas of a 32B model "
        f"on two H100. Capacity: {capacity:.2f} requests/s, the highest rate at which "
        f"{_and(best)} still keeps {ENOUGH:.0%} of the requests within the SLO (first token within "
        f"{SLO.ttft_s:g} s, then {SLO.tpot_s * 1e3:g} ms a token), caches warm."
    )
    shown = [point for point in points if point.load in SHOWN]
    found = Found(
        "llm-d's workload from half load to overload",
        method,
        build(shown, _columns(), group=lambda point: point.load),
        remarks=_remarks(points),
        verdicts=judge(points),
        figures={
            "capacity": capacity,
            "best": best,
            "points": [
                {
                    "load": point.load,
                    "policy": point.policy,
                    "in_slo": point.result.kept,
                    **point.result.summary.all.document(),
                }
                for point in points
            ],
        },
    )
    return found, points


def task(policy: str, rate: float, seed: int, length: Length) -> Task:
    # Warm up at half of the rate that saturates the fleet without cache hits, so that no request
    # waits when counting begins.
    warm_s = 150 / (0.5 * cold_rate(LLMD, [_SIZE]))
    return Task(
        policy=policy,
        scenario=replace(routed(LLMD, policy), seed=seed),
        traffic=partial(
            Warmed,
            rate=rate,
            duration_s=length.fills_s + length.measured_s,
            warm_s=warm_s,
            seed=seed,
        ),
        slo=SLO,
        measure_from=warm_s + length.fills_s,
    )


def find_capacity(
    policies: Sequence[str], seed: int, jobs: int, length: Length, precision: float
) -> tuple[float, list[str]]:
    """Return the capacity in requests/s, and the policies that sustain it, without the oracle."""
    alive = [policy for policy in policies if policy != oracle.NAME] or list(policies)

    def holds(rates: Sequence[float]) -> list[bool]:
        nonlocal alive
        places = [(rate, policy) for rate in rates for policy in alive]
        rows = play([task(policy, rate, seed, length) for rate, policy in places], jobs)
        carried: dict[float, list[str]] = {rate: [] for rate in rates}
        for (rate, policy), row in zip(places, rows, strict=True):
            if row.kept >= ENOUGH:
                carried[rate].append(policy)
        for rate in rates:
            if not carried[rate]:
                break
            alive = carried[rate]
        return [bool(carried[rate]) for rate in rates]

    cold = cold_rate(LLMD, [_SIZE])
    return highest(holds, cold, 2.0 * cold, precision), alive


# -- what the table says --------------------------------------------------------------------------


def _columns() -> list[Column[Point]]:
    return [
        Column("load", "load", "%", lambda point: point.load),
        Column("policy", "policy", text=lambda point: point.policy),
        Column("slo", "in SLO", "%", lambda point: 100.0 * point.result.kept, "high"),
        Column("good", "goodput", "req/s", lambda point: point.goodput, "high"),
        *(
            Column(f"p{q}", f"TTFT p{q}", "s", partial(_quantile, q=q / 100.0), "low")
            for q in (50, 90, 99)
        ),
        Column("tpot", "TPOT p50", "ms", _tpot_ms, "low"),
        Column("hits", "hits", "%", lambda p: 100.0 * (p.result.summary.all.hit_rate or 0), "high"),
        Column("failed", "failed", value=lambda p: p.result.summary.all.failed, better="low"),
        Column("out", "ejected", value=lambda p: p.result.totals.ejections),
    ]


def _quantile(point: Point, q: float) -> float | None:
    group = point.result.summary.all
    return group.quantile(group.ttft, q)


def _tpot_ms(point: Point) -> float | None:
    group = point.result.summary.all
    tpot = group.quantile(group.tpot, 0.5)
    return None if tpot is None else 1e3 * tpot


def judge(points: Sequence[Point]) -> list[Verdict]:
    """Judge the goodput: in overload against random choice, at half load against two policies."""
    at = {(point.load, point.policy): point for point in points}
    verdicts = [
        _ratio(at, 110, "random", 1 / 1.8, "goodput at 110 %: random over ours", "≤ 1 / 1.8")
    ]
    for other in ("random", "least_load"):
        name = f"goodput at 50 %: {other} over ours"
        verdicts.append(_ratio(at, 50, other, 1.0, name, "≤ 1"))
    return verdicts


def _ratio(
    at: dict[tuple[int, str], Point], load: int, other: str, limit: float, name: str, goal: str
) -> Verdict:
    ours, theirs = at.get((load, DEFAULT)), at.get((load, other))
    if ours is None or theirs is None:
        return Verdict(name, goal, limit, None, f"{DEFAULT} or {other} is not in this run")
    if not ours.goodput:
        return Verdict(name, goal, limit, None, "ours is zero")
    note = f"{theirs.goodput:.2f} and {ours.goodput:.2f} requests/s"
    return Verdict(name, goal, limit, theirs.goodput / ours.goodput, note)


def _remarks(points: Sequence[Point]) -> list[str]:
    """Say from which load on affinity helps, compared with random choice and with least_load."""
    return [line for other in ("random", "least_load") if (line := begins_to_pay(points, other))]


def begins_to_pay(points: Sequence[Point], other: str, by: float = 1.1) -> str:
    """Say at which loads the default policy's p90 TTFT and goodput are `by` times better."""
    at = {(point.load, point.policy): point for point in points}
    loads = sorted({point.load for point in points})
    pairs = [(load, at.get((load, DEFAULT)), at.get((load, other))) for load in loads]
    known = [(load, ours, theirs) for load, ours, theirs in pairs if ours and theirs]
    if not known:
        return ""
    sooner = _from([(load, b.result.ttft_p90 >= by * a.result.ttft_p90) for load, a, b in known])
    more = _from([(load, a.goodput >= by * b.goodput) for load, a, b in known])
    return (
        f"Against {other}, the p90 of the first token is a tenth less or better {sooner}, goodput "
        f"a tenth more {more}."
    )


def _from(holds: Sequence[tuple[int, bool]]) -> str:
    """Describe the longest range of loads in which the condition holds."""
    longest: list[int] = []
    stretch: list[int] = []
    for load, is_held in holds:
        stretch = [*stretch, load] if is_held else []
        if len(stretch) > len(longest):
            longest = stretch
    if not longest:
        return "nowhere"
    if len(longest) == len(holds):
        return "at every load"
    if longest[-1] == holds[-1][0]:
        return f"from {longest[0]} % on"
    return f"from {longest[0]} to {longest[-1]} %"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
