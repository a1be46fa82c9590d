"""Compares every policy in every scenario in one table, and names the best default policy.

A figure is the policy's p90 time to first token divided by that of the best policy in the same
scenario. The last column is the policy's worst figure. The oracle, a router that sees the engines'
true state, is shown for comparison: it counts neither as the best policy nor as a default. A
request without a whole answer counts as slower than all others. The best default is the policy
whose worst figure is lowest, because an operator does not know beforehand which scenario matches
the traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, inf, isfinite, log

from bench.findings.found import Found
from bench.findings.intervals import LEVEL, PAIRS_MIN, difference
from bench.fleet.simulated import oracle
from bench.fleet.simulated.task import Result, Task, play
from bench.fleet.simulated.worlds import FLEET, WARM, World, routed, worlds
from bench.overhead.goals import Verdict
from router.core.text.table import Column, build
from router.lab.replay.report.slo import Slo
from router.lab.replay.report.words import seconds

DEFAULT = "kv_aware"
SLO = Slo(2.0, 0.2)  # first token in 2 s, then five tokens/s: about reading speed
REQUESTS, QUICK = 4000, 150


@dataclass(frozen=True, slots=True)
class Row:
    """One policy's results, with one item per scenario."""

    policy: str
    ttft_s: Sequence[float]  # p90 of the time to first token, in seconds
    kept: Sequence[float]  # share of the requests within the SLO
    regret: Sequence[float]  # p90 divided by the p90 of the best policy

    @property
    def worst(self) -> float:
        return max(self.regret)


def run(
    policies: Sequence[str], *, seed: int = 1, jobs: int = 1, requests: int = REQUESTS
) -> Found:
    everything = worlds(requests)
    tasks = [task(world, policy, seed) for world in everything for policy in policies]
    results = iter(play(tasks, jobs))
    by_world = [{policy: next(results) for policy in policies} for _ in everything]
    rows = rank(policies, by_world)
    return Found(
        "Every policy in every scenario",
        f"{len(tasks)} runs of {requests:,} requests on {FLEET.replicas} replicas of an 8B model "
        f"on an A100 with {FLEET.core.num_blocks * FLEET.core.block_size:,} tokens of KV cache, "
        "where nothing else is said; load is a share of what the fleet carries without cache hits."
        f" TTFT p90 over that of the best policy; the first {WARM:.0%} are not counted.",
        build(rows, _columns(everything), sort="worst"),
        remarks=_remarks(everything, rows),
        verdicts=[_judge(_real(rows))],
        figures={
            "worlds": [
                {"name": f"{world.name} {world.unit}", "words": world.words, "rate": world.rate}
                for world in everything
            ],
            "policies": {
                row.policy: {
                    "ttft_p90_s": [t if isfinite(t) else None for t in row.ttft_s],
                    "in_slo": list(row.kept),
                }
                for row in rows
            },
        },
    )


def task(world: World, policy: str, seed: int) -> Task:

    return Task(
        policy=policy,
        scenario=routed(world.scenario(seed), policy),
        traffic=partial(world.traffic, seed),
        slo=SLO,
        measure_from=WARM * world.seconds,
    )


def rank(policies: Sequence[str], by_world: Sequence[Mapping[str, Result]]) -> list[Row]:
    """Return each policy's times, and their ratios to the best policy's time in each scenario."""
    best = [
        min(
            (result.ttft_p90 for policy, result in here.items() if policy != oracle.NAME),
            default=inf,
        )
        for here in by_world
    ]
    rows = []
    for policy in policies:
        mine = [here[policy] for here in by_world]
        times = [result.ttft_p90 for result in mine]
        regret = [regretted(time, least) for time, least in zip(times, best, strict=True)]
        rows.append(Row(policy, times, [result.kept for result in mine], regret))
    return rows


def regretted(time: float, best: float) -> float:
    """Ratio of a policy's time to the best time; 1 if the best time is infinite."""
    if best == inf:
        return 1.0
    return time / best if best > 0.0 else 1.0


def _columns(everything: Sequence[World]) -> list[Column[Row]]:
    return [
        Column("policy", "policy", text=lambda row: row.policy),
        *(
            Column(f"w{n}", world.name, world.unit, partial(_regret, n), "low")
            for n, world in enumerate(everything)
        ),
        Column("worst", "worst", "× best", lambda row: row.worst, "low"),
    ]


def _regret(number: int, row: Row) -> float:
    return row.regret[number]


def _real(rows: Sequence[Row]) -> list[Row]:
    """The rows without the oracle's."""
    return [row for row in rows if row.policy != oracle.NAME]


def _remarks(everything: Sequence[World], rows: Sequence[Row]) -> list[str]:
    real = _real(rows)
    if not real:
        return []
    return [_supports(real), *_beside_oracle(rows), *_legend(everything, real)]


def _supports(rows: Sequence[Row]) -> str:
    least = min(rows, key=lambda row: row.worst)
    where = ", ".join(
        f"{row.policy} {row.worst:.2f}" for row in sorted(rows, key=lambda row: row.worst)[:3]
    )
    return f"The table speaks for {least.policy} as the default: least worst regret ({where})."


def _beside_oracle(rows: Sequence[Row]) -> list[str]:
    """Describe the default policy's p90 divided by the oracle's (geometric mean of scenarios)."""
    at = {row.policy: row.ttft_s for row in rows}
    ours, seeing = at.get(DEFAULT), at.get(oracle.NAME)
    if ours is None or seeing is None:
        return []
    pairs = [pair for pair in zip(ours, seeing, strict=True) if max(pair) < inf and min(pair) > 0.0]
    if len(pairs) < PAIRS_MIN:
        return []
    found = difference([log(mine) for mine, _ in pairs], [log(other) for _, other in pairs])
    low, mean, high = exp(found.low), exp(found.value), exp(found.high)
    return [
        f"{DEFAULT}'s p90 is {mean:.2f} times the oracle's in the geometric mean of {len(pairs)} "
        f"scenarios ({LEVEL:.0%} of the resampled means: {low:.2f} to {high:.2f})."
    ]


def _legend(everything: Sequence[World], rows: Sequence[Row]) -> list[str]:
    """Describe each column: the scenario, its best policy, and the highest and lowest share of
    requests within the SLO.
    """
    lines = []
    for number, world in enumerate(everything):
        best = min(rows, key=lambda row: row.ttft_s[number])
        most = max(rows, key=lambda row: row.kept[number])
        least = min(rows, key=lambda row: row.kept[number])
        lines.append(
            f"{world.name} {world.unit}: {world.words}; {world.rate:.3g} requests/s. Best p90 "
            f"{seconds(best.ttft_s[number])} ({best.policy}); in SLO {most.kept[number]:.1%} "
            f"({most.policy}) to {least.kept[number]:.1%} ({least.policy})."
        )
    return lines


def _judge(rows: Sequence[Row]) -> Verdict:
    name, goal = f"{DEFAULT}: worst regret over the least of the others", "≤ 1"
    ours = [row for row in rows if row.policy == DEFAULT]
    others = [row.worst for row in rows if row.policy != DEFAULT]
    if not ours or not others:
        return Verdict(name, goal, 1.0, None, "there is nobody to compare with in this run")
    return Verdict(name, goal, 1.0, ours[0].worst / min(others))
