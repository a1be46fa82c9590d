"""Hedgerow's goals for the fleet bench: ratios to the best other router, and hotspots.

Each ratio is judged by its interval over the rounds, and by the noise: the difference between two
runs of the same router in each round. The best other router is chosen by its figures in these
rounds, which favours it a little. The oracle is not compared, because it knows the true state of
all engines, which no router can know.

Lower is better for every verdict's value. The verdict on the share of requests within the SLO is
therefore the best other router's share divided by Hedgerow's. Shares are compared, not rates: in
the workload `chat` a conversation's next request is due after the previous answer, so a slower
router receives fewer requests per second.

Compares routers under one workload by their figures in the same rounds. Pure.

Must never compare figures of different rounds, because the requests differ from round to round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from bench.findings import intervals
from bench.findings.intervals import MISSED, Interval
from bench.findings.judged import Judged, judged_interval
from bench.fleet.contestants import Oracle, again_name
from bench.fleet.run import Row
from bench.fleet.scenarios import Outcome
from bench.fleet.statistics import Summary
from bench.overhead.goals import Verdict

Figure = Callable[[Summary], float | None]


class Paired:
    """The results of one workload, by router (or policy) and round."""

    def __init__(self, rows: Iterable[Row], workload: str) -> None:
        self._found: dict[str, dict[int, Summary]] = {}
        for row in rows:
            if row.workload == workload and row.summary is not None:
                self._found.setdefault(row.name, {})[row.round] = row.summary

    @property
    def names(self) -> list[str]:
        """The measured contestants, in the order in which they were first played."""
        return list(self._found)

    def rounds(self, name: str) -> set[int]:
        """The numbers of the rounds in which the router `name` was measured."""
        return set(self._found.get(name, ()))

    def mean(self, name: str, figure: Figure) -> float | None:
        """The mean of a figure over a router's rounds; `None` if it is missing in a round."""
        values = [figure(one) for one in self._found[name].values()]
        known = [value for value in values if value is not None]
        return fmean(known) if len(known) == len(values) else None

    def pairs(self, ours: str, theirs: str, figure: Figure) -> list[tuple[float, float]] | None:
        """Return the figure of both contestants in each round in which both were measured.

        `None` if there is no such round, or if a figure of a round is missing or not above 0.
        """
        found = []
        for number in sorted(self.rounds(ours) & self.rounds(theirs)):
            mine, other = (figure(self._found[name][number]) for name in (ours, theirs))
            if not mine or not other:
                return None
            found.append((mine, other))
        return found or None

    def ratio(self, ours: str, theirs: str, figure: Figure) -> Interval | None:
        """The mean of `ours` divided by the mean of `theirs`; `None` if `pairs` returns `None`."""
        pairs = self.pairs(ours, theirs, figure)
        return intervals.ratio(*zip(*pairs, strict=True)) if pairs else None

    def noise(self, first: str, second: str, figure: Figure) -> float | None:
        """Relative difference between the two runs of the same router, named `first` and `second`.

        `None` if fewer than `PAIRS_MIN` rounds have both runs.
        """
        pairs = self.pairs(first, second, figure)
        if pairs is None or len(pairs) < intervals.PAIRS_MIN:
            return None
        return intervals.noise(*zip(*pairs, strict=True))


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
