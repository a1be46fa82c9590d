"""The goals of priorities as verdicts by interval: met, missed or open. Pure.

Every figure is one value per seed, and its interval is that of `bench.findings.intervals`. A goal
without enough seeds is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.findings.intervals import MET, OPEN, Interval, difference, judged, noise, ratio
from bench.overhead.goals import Verdict
from bench.priority.simulated.seen import QUANTILES, Run

P50: Final = QUANTILES.index(0.5)
P99: Final = QUANTILES.index(0.99)
HIGH_P99_S: Final = 0.5
COST: Final = 1.05  # tokens/s without a queue, as a multiple of those with the queue
HIGH_TO_NORMAL: Final = 0.5
UNFAIR: Final = 0.05  # 1 less Jain's index

Runs = Sequence[Run]


def high_ttft(case: str, ours: Runs) -> Verdict:
    """The p99 of the TTFT of class high, in seconds."""
    found = _mean([run.ttft_s["high"][P99] for run in ours if "high" in run.ttft_s])
    return _verdict(f"{case}: high, TTFT p99", f"{HIGH_P99_S:g} s at most", found, HIGH_P99_S)


def cost(case: str, ours: Runs, unqueued: Runs) -> Verdict:
    """The output tokens/s without a queue, over those with the queue. A/A: two halves of the seeds
    without a queue."""
    name, goal = f"{case}: tokens/s, no queue over ours", f"{COST:g} at most"
    pairs = _paired(ours, unqueued)
    if not pairs:
        return Verdict(name, goal, COST, None, "nothing to compare")
    theirs = [without.tokens_s for _, without in pairs]
    half = len(theirs) // 2
    own = noise(theirs[:half], theirs[half : 2 * half]) if half else 0.0
    found = ratio(theirs, [mine.tokens_s for mine, _ in pairs])
    return _verdict(name, goal, found, COST, own)


def high_before_normal(case: str, ours: Runs) -> Verdict:
    """The median TTFT of class high over that of class normal, both with a backlog."""
    both = [run for run in ours if "high" in run.ttft_s and "normal" in run.ttft_s]
    name, goal = f"{case}: TTFT p50, high over normal", f"{HIGH_TO_NORMAL:g} at most"
    if not both:
        return Verdict(name, goal, HIGH_TO_NORMAL, None, "no such requests")
    high = [run.ttft_s["high"][P50] for run in both]
    normal = [run.ttft_s["normal"][P50] for run in both]
    return _verdict(name, goal, ratio(high, normal), HIGH_TO_NORMAL)


def fairness(case: str, ours: Runs) -> Verdict:
    """1 less Jain's index over tenants that always wait: of each run, the least fair class."""
    found = _mean([1.0 - min(run.jain.values()) for run in ours if run.jain])
    name = f"{case}: 1 - Jain's index, least fair class"
    return _verdict(name, f"{UNFAIR:g} at most", found, UNFAIR, digits=3)


def starvation(case: str, ours: Runs, bounds_s: Mapping[str, float]) -> Verdict:
    """The longest wait of any class over its bound. A bound holds for every run, so one run that
    exceeds it misses the goal."""
    name, goal = f"{case}: longest wait over its bound", "1 at most"
    shares = {
        run.seed: max(
            ((wait / bounds_s[name], name) for name, wait in run.longest_wait_s.items()),
            default=(0.0, ""),
        )
        for run in ours
    }
    if not shares:
        return Verdict(name, goal, 1.0, None, "nothing to compare")
    worst, of = max(shares.values())
    found = _mean([share for share, _ in shares.values()])
    text = f"{worst:.2f} at worst" + (f", mean {found.text()}" if found is not None else "")
    return Verdict(name, goal, 1.0, worst, of, text)


def _mean(values: Sequence[float]) -> Interval | None:
    return difference(values, [0.0] * len(values)) if values else None


def _paired(ours: Runs, theirs: Runs) -> list[tuple[Run, Run]]:
    by_seed = {run.seed: run for run in theirs}
    return [(run, by_seed[run.seed]) for run in ours if run.seed in by_seed]


def _verdict(
    name: str,
    goal: str,
    found: Interval | None,
    limit: float,
    noise: float = 0.0,
    digits: int = 2,
) -> Verdict:
    if found is None:
        return Verdict(name, goal, limit, None, "nothing to compare")
    text = found.text(digits)
    verdict = judged(found, limit, noise)
    if verdict == OPEN:
        return Verdict(name, goal, limit, None, f"open, {text}, {found.pairs} seeds")
    # The bound of the interval that decides.
    value = found.high if verdict == MET else found.low
    return Verdict(name, goal, limit, value, f"{found.pairs} seeds", text)
