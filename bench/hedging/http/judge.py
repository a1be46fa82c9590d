"""Judges the goals of hedging over HTTP: compares Hedgerow with and without hedging. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.hedging import goals
from bench.hedging.http.figures import Figures
from bench.hedging.http.stage import Row
from bench.hedging.http.traffic import URGENT
from bench.overhead.goals import Verdict
from router.config.model import Hedging

BUDGET = Hedging().budget
WITH, WITHOUT = "adaptive", "off"


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts on the goals of every scenario that was run with hedging."""
    verdicts: list[Verdict] = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        here = {row.key: row for row in rows if row.scenario == scenario}
        if WITH in here:
            verdicts += _scenario(scenario, here)
    return verdicts


def _scenario(scenario: str, here: dict[str, Row]) -> list[Verdict]:
    own, without = _figures(here.get(WITH)), _figures(here.get(WITHOUT))
    p99 = own.urgent.p99 if own is not None else None
    p99_without = without.urgent.p99 if without is not None else None
    name = f"{scenario}: {URGENT}"
    found = []
    if scenario.startswith("slow-requests"):
        found.append(goals.cut(f"{name}, p99 TTFT", p99_without, p99, 0.6, _note(here)))
        found.append(_best_other(name, p99, here))
    elif scenario == "frozen":
        normal = own.urgent_normal.p99 if own is not None else None
        worst = own.urgent.worst if own is not None else None
        found.append(goals.times(f"{name}, slowest", worst, normal, 2.0, "p99 before"))
    else:
        found.append(goals.kept(f"{name}, p99 TTFT", p99_without, p99, 0.02, _note(here)))
    found.append(
        goals.kept(
            f"{scenario}: others, p99 TTFT",
            without.other.p99 if without is not None else None,
            own.other.p99 if own is not None else None,
            0.03,
            _chance(here, "other"),
        )
    )
    extra = own.extra_asked if own is not None else None
    found.append(goals.within(f"{scenario}: extra prompt tokens", extra, BUDGET))
    return found


def _best_other(name: str, p99: float | None, here: dict[str, Row]) -> Verdict:
    """Compare the p99 with that of the best other router."""
    others = {
        row.name: theirs
        for key, row in here.items()
        if key not in (WITH, WITHOUT)
        and row.figures is not None
        and (theirs := row.figures.urgent.p99) is not None
    }
    if not others:
        return Verdict(f"{name}, p99 TTFT", "the best of the others'", 1.0, None, "no others")
    best = min(others, key=lambda who: others[who])
    troubles = "; ".join(p for row in here.values() if row.name == best for p in row.problems)
    note = f"{best}: {troubles}" if troubles else ""
    return goals.times(f"{name}, p99 TTFT", p99, others[best], 1.0, f"{best}'s", note)


def _figures(row: Row | None) -> Figures | None:
    return row.figures if row is not None else None


def _note(here: dict[str, Row]) -> str:
    if WITHOUT not in here:
        return ""
    mine = [here[WITHOUT], here[WITH]]
    problems = [f"{row.name}: {problem}" for row in mine for problem in row.problems]
    return "; ".join(filter(None, [_chance(here, "urgent"), *problems]))


def _chance(here: dict[str, Row], side: str) -> str:
    """Format the 95 % confidence intervals of the p99 without and with hedging."""
    if WITHOUT not in here:
        return ""
    words = []
    for key in (WITHOUT, WITH):
        seen = _figures(here.get(key))
        bounds = getattr(seen, side).p99_bounds if seen is not None else None
        if bounds is not None:
            words.append(f"{key} {bounds[0] * 1e3:.0f} to {bounds[1] * 1e3:.0f} ms")
    return f"by chance: {', '.join(words)}" if words else ""
