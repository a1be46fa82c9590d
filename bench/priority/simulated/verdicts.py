"""Judges the goals of priorities by confidence intervals: met, missed or open. Pure.

Most goals are judged by `bench.findings.judged` from one value per seed. The bound of a wait is
judged by the worst run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.findings.intervals import noise
from bench.findings.judged import Judged, judged_mean, judged_ratio
from bench.overhead.goals import Verdict
from bench.priority.simulated.seen import QUANTILES, Run

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
