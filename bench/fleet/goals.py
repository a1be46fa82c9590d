"""Hedgerow's goals for the fleet bench: ratios to the best other router, and hotspots.

Each ratio is judged by its interval over the rounds, and by the noise: the difference between two
runs of the same router in each round. The best other router is chosen by its figures in these
rounds, which favours it a little. The oracle is not compared, because it knows the true state of
all engines, which no router can know.

Lower is better for every verdict's value. The verdict on the share of requests within the SLO is
therefore the best other router's share divided by Hedgerow's. Shares are compared, not rates: in
the workload `chat` a conversation's next request is due after the previous answer, so a slower
router receives fewer requests per second.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.findings.intervals import MISSED
from bench.findings.judged import Judged, judged_interval
from bench.fleet.contestants import Oracle, again_name
from bench.fleet.paired import Figure, Paired
from bench.fleet.run import Row
from bench.fleet.scenarios import Outcome
from bench.fleet.statistics import Summary
from bench.overhead.goals import Verdict

MEAN_LIMIT = SHARE_LIMIT = 1.05
P99_LIMIT = 1.0
HOTSPOT_LIMIT = 1.3


def judge(
    rows: Sequence[Row], outcomes: Sequence[Outcome], subject: str, workloads: Sequence[str]
) -> list[Verdict]:
    """Return a verdict on each goal. `subject` is the name of the judged router."""
    verdicts = []
    for workload in workloads:
        verdicts += compare(workload, Paired(rows, workload), subject)
    for outcome in outcomes:
        note = "; ".join(outcome.problems)
        verdicts.append(
            Verdict(
                f"hotspot, {outcome.name}",
                f"≤ {HOTSPOT_LIMIT:g}",
                HOTSPOT_LIMIT,
                outcome.hotspot,
                note or ("" if outcome.hotspot is not None else "nothing arrived"),
            )
        )
    return verdicts


def compare(workload: str, paired: Paired, subject: str) -> list[Verdict]:
    """Return the verdicts on the three goals of one workload."""
    goals = [
        (f"{workload}: TTFT mean", f"≤ {MEAN_LIMIT:g} × the best", MEAN_LIMIT),
        (f"{workload}: share in SLO", f"≥ the best / {SHARE_LIMIT:g}", SHARE_LIMIT),
        (f"{workload}: TTFT p99", "≤ that of the best mean", P99_LIMIT),
    ]
    played = paired.rounds(subject)
    # Skip contestants that were not measured in all of the subject's rounds: their means are of
    # other requests.
    others = [name for name in rivals(paired, subject) if paired.rounds(name) >= played]
    if not played or not others:
        note = "nobody to compare with in this run" if played else "Hedgerow is not in this run"
        return [Verdict(*goal, None, note) for goal in goals]
    fastest = min(others, key=lambda name: paired.mean(name, ttft_mean) or float("inf"))
    surest = max(others, key=lambda name: paired.mean(name, good_share) or 0.0)
    return [
        _judged(goals[0], paired, subject, fastest, ttft_mean),
        _judged(goals[1], paired, subject, surest, good_share, is_inverse=True),
        _judged(goals[2], paired, subject, fastest, ttft_p99),
    ]


def rivals(paired: Paired, subject: str) -> list[str]:
    """The routers and policies with which the judged one is compared."""
    apart = (subject, again_name(subject), Oracle.name)
    return [name for name in paired.names if name not in apart]


def ttft_mean(seen: Summary) -> float | None:
    return seen.ttft_mean


def ttft_p99(seen: Summary) -> float | None:
    return seen.ttft_p99


def good_share(seen: Summary) -> float | None:
    return seen.good_share


def _judged(
    goal: tuple[str, str, float],
    paired: Paired,
    subject: str,
    best: str,
    figure: Figure,
    is_inverse: bool = False,
) -> Verdict:
    pair = (best, subject) if is_inverse else (subject, best)
    found = paired.ratio(*pair, figure)
    if found is not None:
        noise = paired.noise(subject, again_name(subject), figure)
        return judged_interval(*goal, found, noise, [f"best: {best}"])
    if paired.pairs(best, best, figure):
        note = f"{subject} has no such figure in a round, because requests failed"
        return Judged(*goal, None, note, state=MISSED)
    return Verdict(*goal, None, f"{best} has no such figure in a round, because requests failed")
