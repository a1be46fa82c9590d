"""Repeats Mooncake's experiment on Mooncake's trace: how much cache-aware routing helps.

Source: Qin et al., "Mooncake", FAST'25: 16 machines of 8 x A800 and the conversation trace. The
paper's mean time to first token is 19.65 s with random choice, 5.27 s with load balancing, 3.58 s
with local and 3.07 s with global cache awareness. The paper does not give the replay speed. The
trace is therefore played here at the speed at which random choice reaches the paper's 19.65 s; all
other figures then follow from the simulator.

The simulated engines have the measured timing of Llama-2-70B on 8 x A100. Their KV cache is 0.9 of
the GPUs' 640 GB, minus the weights, at 320 KiB per token. The paper's machines also keep KV in main
memory and send it to each other. The simulated engines do not, so that a policy can only choose the
replica that holds the prefix. The two cache-aware steps are therefore defined as:

- local: each replica's cache is considered alone; the replica that holds most of the prompt is
  chosen unless it is too busy (`prefix_affinity`, the method of SGLang's router);
- global: the saving of a hit is weighed against the queued work of every replica (`kv_aware`).

Further rows show several separate routers, each of which knows only its own requests. No request
times out and no replica is ejected as hanging, because the experiment measures the waits in the
engines' queues, which are long at this load.

`highest`: finds the highest rate at which a condition holds, to a given precision. Pure, except
`holds`.

The result must never depend on the number of worker processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from bench.findings.found import Found
from bench.fleet.simulated.task import Result, Task, play
from bench.fleet.simulated.worlds import routed
from bench.overhead.goals import Verdict
from bench.traces import PublicTrace
from bench.traces.reuse import reuse_bound
from router.config.varied import varied
from router.core.text.table import Column, build
from router.lab.emulator.core.timing import PROFILES, CoreConfig
from router.lab.replay.report.slo import Slo
from router.lab.simulator.router import TOKEN_BYTES
from router.lab.simulator.scenario import Scenario, equal
from router.lab.traces import describe

AT_ONCE = 3  # number of values that `holds` gets at once, however many processes evaluate them


def highest(
    holds: Callable[[Sequence[float]], Sequence[bool]], low: float, high: float, precision: float
) -> float:
    """Return the highest value found for which the condition holds.

    A value that is higher by the share `precision` fails.

    `holds` is called with ascending values; all values above the first failure count as failures.
    If necessary, `low` is lowered until it holds, and `high` is raised until it fails. Raises
    ValueError if that takes more than 20 steps.
    """
    for _ in range(20):
        is_low, is_high = holds([low, high])
        if is_low and not is_high:
            break
        low, high = (low, high * 2.0) if is_low else (low / 2.0, high)
    else:
        raise ValueError(f"nothing between {low:g} and {high:g} is where it begins to fail")
    while high > low * (1.0 + precision):
        ratio = (high / low) ** (1.0 / (AT_ONCE + 1))
        values = [low * ratio ** (place + 1) for place in range(AT_ONCE)]
        for value, is_held in zip(values, holds(values), strict=True):
            if not is_held:
                high = value
                break
            low = value
    return low


REPLICAS = 16
PROFILE = "llama2-70b-a100x8"
# Bytes per token: layers x heads x head size x (K and V) x 2 bytes.
KV_TOKENS = int((0.9 * 8 * 80e9 - 2 * 69.0e9) / (80 * 8 * 128 * 2 * 2))
PAPER_S = {"random": 19.65, "least_load": 5.27, "prefix_affinity": 3.58, "kv_aware": 3.07}
RUNGS = ("random", "least_load", "prefix_affinity", "kv_aware")
BLIND = 4  # number of separate routers that exchange nothing
SLO = Slo(30.0, 0.2)  # first token within 30 s, which even the longest prompt can meet
_NEVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Reuse:
    """Shares of the prompts' KV blocks that a cache could have served."""

    infinite: float
    finite: float  # with one LRU cache as large as all caches of the fleet together
    asked: int  # number of KV blocks of all prompts
    block_tokens: int

    @property
    def bound(self) -> float:
        return min(self.infinite, self.finite)

    def of(self, result: Result) -> float:
        return result.summary.all.cached_tokens / self.block_tokens / self.asked


def run(
    path: str,
    policies: Sequence[str],
    *,
    seed: int = 1,
    jobs: int = 1,
    limit: int | None = None,
    speedup: float | None = None,
    precision: float = 0.01,
) -> Found:
    """Return the table. `speedup` is the trace's speed; if None, it is searched.

    Raises TraceError and OSError.
    """
    trace = partial(PublicTrace, path, spread_seed=seed, limit=limit)
    reuse = _reuse(trace())
    world = _world(seed, reuse.block_tokens)
    if speedup is None:
        speedup = _like_the_paper(world, trace, jobs, precision)
    names = list(dict.fromkeys([*RUNGS, *policies]))
    tasks = [_task(world, trace, speedup, name) for name in names]
    tasks += [_task(world, trace, speedup, name, routers=BLIND) for name in RUNGS[1:]]
    rows = play(tasks, jobs)
    return _found(rows, reuse, speedup, trace())


def _world(seed: int, block_tokens: int) -> Scenario:
    return Scenario(
        groups=equal(
            REPLICAS,
            CoreConfig(num_blocks=KV_TOKENS // block_tokens, block_size=block_tokens),
            PROFILES[PROFILE],
        ),
        config=varied(
            queue={"enabled": False},
            health={"suspect_min_s": _NEVER_S},
            timeouts={"first_token_s": float("inf"), "whole_s": float("inf")},
            prefix={"block_bytes": int(block_tokens * TOKEN_BYTES)},
        ),
        seed=seed,
    )


def _task(
    world: Scenario, trace: partial[PublicTrace], speedup: float, policy: str, routers: int = 1
) -> Task:
    return Task(
        policy=policy if routers == 1 else f"{policy}, {routers} separate routers",
        scenario=replace(routed(world, policy), routers=routers),
        traffic=partial(trace, speedup=speedup),
        slo=SLO,
    )


def _reuse(trace: PublicTrace) -> Reuse:
    facts = describe(trace)
    if facts.reuse is None:
        raise ValueError(f"{trace.name} does not tell which prompts share a prefix")
    blocks = REPLICAS * (KV_TOKENS // facts.block_tokens)
    finite = reuse_bound(trace, blocks)
    return Reuse(facts.reuse.share, finite.share, facts.reuse.asked, facts.block_tokens)


def _like_the_paper(
    world: Scenario, trace: partial[PublicTrace], jobs: int, precision: float
) -> float:
    """Find the trace speed at which random choice has the paper's mean time to first token."""

    def holds(speeds: Sequence[float]) -> list[bool]:
        rows = play([_task(world, trace, speed, RUNGS[0]) for speed in speeds], jobs)
        return [_mean_s(row) <= PAPER_S[RUNGS[0]] for row in rows]

    return highest(holds, 0.25, 1.0, precision)


def _mean_s(row: Result) -> float:
    mean = row.summary.all.ttft.mean
    return float("inf") if mean is None else mean


def _found(rows: Sequence[Result], reuse: Reuse, speedup: float, trace: PublicTrace) -> Found:
    columns: list[Column[Result]] = [
        Column("policy", "policy", text=lambda row: row.policy),
        Column("paper", "paper", "s", lambda row: PAPER_S.get(row.policy)),
        Column("mean", "TTFT mean", "s", _mean_s, "low"),
        *(
            Column(f"p{q}", f"p{q}", "s", partial(_quantile, q=q / 100.0), "low")
            for q in (50, 90, 99)
        ),
        Column(
            "tpot", "TPOT mean", "ms", lambda row: 1e3 * (row.summary.all.tpot.mean or 0), "low"
        ),
        Column("reuse", "reuse", "% blocks", lambda row: 100.0 * reuse.of(row), "high"),
        Column("hotspot", "hotspot", "× even", lambda row: row.summary.hotspot, "low"),
        Column("busy", "busy", "%", lambda row: 100.0 * row.busy),
    ]
    method = (
        f"{len(rows)} runs of {trace.name} at {speedup:.3g} times its speed, arrivals spread in "
        f"their slots, on {REPLICAS} replicas ({PROFILE}, {KV_TOKENS:,} tokens of KV cache each)."
        f" An infinite cache would find {reuse.infinite:.1%} of the blocks, one cache of the "
        f"fleet's size {reuse.finite:.1%}."
    )
    return Found(
        "Mooncake's ladder",
        method,
        build(rows, columns),
        verdicts=_judge({row.policy: row for row in rows}, reuse),
        figures={"speedup": speedup, "reuse": {"infinite": reuse.infinite, "lru": reuse.finite}},
    )


def _quantile(row: Result, q: float) -> float | None:
    return row.summary.all.quantile(row.summary.all.ttft, q)


def _tpot_ms(row: Result) -> float | None:
    mean = row.summary.all.tpot.mean
    return None if mean is None else 1e3 * mean


def _judge(rows: dict[str, Result], reuse: Reuse) -> list[Verdict]:
    means = [_mean_s(rows[name]) for name in RUNGS]
    step = max(after / before for before, after in pairwise(means))
    ours = rows[RUNGS[-1]]
    return [
        Verdict("mean TTFT falls rung by rung", "each ≤ 1 × the one before", 1.0, step),
        Verdict("mean TTFT against random", "≤ 1 / 3.5", 1 / 3.5, means[3] / means[0]),
        Verdict("mean TTFT against load balancing", "≤ 1 / 1.5", 1 / 1.5, means[3] / means[1]),
        Verdict(
            "block reuse: what could be over what was",
            "≤ 1 / 0.9",
            1 / 0.9,
            reuse.bound / reuse.of(ours) if reuse.of(ours) else None,
            f"{reuse.of(ours):.1%} of {reuse.bound:.1%}",
        ),
    ]
