"""The figures hedging is held to, judged within one run: with against without, and bounds.

Every verdict's value is one that should be small.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.hedging.http.figures import Figures, Times
from bench.hedging.http.stage import Row
from bench.overhead.goals import Verdict

GAIN = 0.4  # of the urgent class's p99 without hedging: -60 %
BUDGET = 0.05  # of all prompt tokens
HARMLESS = 1.02  # of the urgent class's p99 where hedging can do nothing
OTHERS = 1.03  # of the other classes' p99
FROZEN = 2.0  # times the urgent class's p99 before
SUBJECT, WITHOUT = "adaptive", "off"


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """For every scenario of the run, its goals."""
    verdicts: list[Verdict] = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        here = {row.key: row for row in rows if row.scenario == scenario}
        if SUBJECT in here:
            verdicts += _scenario(scenario, here)
    return verdicts


def _scenario(scenario: str, here: dict[str, Row]) -> list[Verdict]:
    subject = here[SUBJECT]
    if subject.figures is None:
        return [Verdict(scenario, "", 1.0, None, f"{subject.name}: {subject.absent}")]
    own = subject.figures
    without = here.get(WITHOUT)
    found = []
    if scenario.startswith("slow-requests"):
        found.append(_ratio(scenario, "high p99", own.urgent, without, "urgent", GAIN, "without"))
        peers = [row for key, row in here.items() if key not in (SUBJECT, WITHOUT) and row.figures]
        if peers:
            best = min(peers, key=_urgent_p99)
            goal = f"best of the others ({best.name})"
            found.append(_ratio(scenario, "high p99", own.urgent, best, "urgent", 1.0, goal))
    elif scenario == "frozen":
        found.append(_frozen(scenario, own))
    else:
        found.append(
            _ratio(scenario, "high p99", own.urgent, without, "urgent", HARMLESS, "without")
        )
    found.append(_ratio(scenario, "others' p99", own.other, without, "other", OTHERS, "without"))
    extra = Verdict(
        f"{scenario}: extra prompt tokens",
        f"≤ {BUDGET:.0%} of all",
        BUDGET,
        own.extra_tokens,
        f"{own.copies} copies",
    )
    return [*found, extra]


def _urgent_p99(row: Row) -> float:
    value = row.figures.urgent.p99 if row.figures else None
    return float("inf") if value is None else value


def _ratio(
    scenario: str, what: str, own: Times, row: Row | None, side: str, limit: float, whose: str
) -> Verdict:
    name, goal = f"{scenario}: {what}", f"≤ {limit:g} × {whose}"
    if row is None or row.figures is None:
        why = "not in this run" if row is None else f"{row.name}: {row.absent}"
        return Verdict(name, goal, limit, None, why)
    theirs: Times = getattr(row.figures, side)
    if own.p99 is None or theirs.p99 is None:
        whom = "ours" if own.p99 is None else row.name
        return Verdict(name, goal, limit, None, f"{whom}: over 1 % of the requests failed")
    notes = [_chance("ours", own), _chance(row.name, theirs), *row.problems]
    return Verdict(name, goal, limit, own.p99 / theirs.p99, "; ".join(filter(None, notes)))


def _chance(whose: str, times: Times) -> str:
    if times.p99_bounds is None:
        return f"{whose}: {times.requests} requests are few"
    low, high = times.p99_bounds
    return f"{whose} {low * 1e3:.0f} to {high * 1e3:.0f} ms by chance"


def _frozen(scenario: str, own: Figures) -> Verdict:
    name, goal = f"{scenario}: slowest high request", f"≤ {FROZEN:g} × p99 before"
    if own.urgent.worst is None or own.urgent_normal.p99 is None:
        return Verdict(name, goal, FROZEN, None, f"{own.urgent_errors} of them failed")
    note = f"p99 before: {own.urgent_normal.p99 * 1e3:.0f} ms"
    return Verdict(name, goal, FROZEN, own.urgent.worst / own.urgent_normal.p99, note)
