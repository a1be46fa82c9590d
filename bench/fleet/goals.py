"""Hedgerow's goals for the fleet bench, judged within one run: ratios to peers, and bounds.

Lower is better for every verdict's value. Goodput is therefore judged as the peer's goodput divided
by Hedgerow's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from bench.fleet.run import Row
from bench.fleet.scenarios import Outcome
from bench.overhead.goals import Verdict

TTFT_LIMITS = {"chat": 0.7, "shared": 0.7}  # maximum p90 TTFT, as a share of the best peer's
HOTSPOT_LIMIT = 1.3
LEAST_LOAD = "hedgerow least_load"


def judge(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    subject: str,
    workloads: Sequence[str],
    peers: Sequence[str],
) -> list[Verdict]:
    """`subject`: the judged contestant; `peers`: names of the other routers."""
    verdicts = []
    for workload in workloads:
        here = {row.name: row for row in rows if row.workload == workload}
        theirs = [here[name] for name in peers if name in here and here[name].summary is not None]
        own = here.get(subject)
        verdicts.append(goodput(workload, own, theirs))
        if workload in TTFT_LIMITS:
            limit = TTFT_LIMITS[workload]
            verdicts.append(ttft(workload, own, theirs, limit, f"≤ {limit:g} × best peer"))
        else:
            least = [here[LEAST_LOAD]] if LEAST_LOAD in here else []
            verdicts.append(ttft(workload, own, least, 1.0, f"≤ {LEAST_LOAD}'s"))
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


def goodput(workload: str, own: Row | None, theirs: Sequence[Row]) -> Verdict:
    """The best peer's share of good answers divided by Hedgerow's share, at most 1.

    Shares are compared, not rates: in `chat` the next turn is due when an answer was read, so that
    the offered rates differ.
    """
    name, goal = f"{workload}: share in SLO", "≥ every peer's"
    if (missing := _missing(own, theirs)) or own is None or own.summary is None:
        return Verdict(name, goal, 1.0, None, missing)
    best = max(theirs, key=lambda row: row.summary.good_share if row.summary else 0.0)
    assert best.summary is not None
    if not own.summary.good_share:
        return Verdict(name, goal, 1.0, None, "ours is zero")
    value = best.summary.good_share / own.summary.good_share
    chance = 1.96 * sqrt(sum(_variance(row) for row in (own, best)))
    words = [f"best: {best.name}", f"± {chance:.1%} is chance", *_problems(own, best)]
    return Verdict(name, goal, 1.0, value, "; ".join(words))


def ttft(workload: str, own: Row | None, theirs: Sequence[Row], limit: float, goal: str) -> Verdict:
    """Hedgerow's p90 TTFT divided by the lowest p90 TTFT of the peers, at most `limit`."""
    name = f"{workload}: TTFT p90"
    if (missing := _missing(own, theirs)) or own is None or own.summary is None:
        return Verdict(name, goal, limit, None, missing)
    known = [row for row in theirs if row.summary and row.summary.ttft_p90 is not None]
    if own.summary.ttft_p90 is None or not known:
        return Verdict(name, goal, limit, None, "more than a tenth of the requests failed")
    best = min(known, key=lambda row: _p90(row))
    words = [f"best: {best.name}", *filter(None, map(_range, (own, best)))]
    value = own.summary.ttft_p90 / _p90(best)
    return Verdict(name, goal, limit, value, "; ".join([*words, *_problems(own, best)]))


def _p90(row: Row) -> float:
    assert row.summary is not None and row.summary.ttft_p90 is not None
    return row.summary.ttft_p90


def _missing(own: Row | None, theirs: Sequence[Row]) -> str:
    if own is None:
        return "Hedgerow is not in this run"
    if own.summary is None:
        return f"{own.name}: {own.absent}"
    return "" if theirs else "nobody to compare with in this run"


def _variance(row: Row) -> float:
    """Relative variance of the share of good answers."""
    seen = row.summary
    if seen is None or not seen.requests or not seen.good_share:
        return 0.0
    return (1 - seen.good_share) / (seen.good_share * seen.requests)


def _range(row: Row) -> str:
    bounds = row.summary.ttft_p90_bounds if row.summary else None
    if bounds is None:
        return ""
    return f"{row.name} {bounds[0] * 1e3:.0f} to {bounds[1] * 1e3:.0f} ms by chance"


def _problems(*rows: Row) -> list[str]:
    return [f"{row.name}: {problem}" for row in rows for problem in row.problems]
