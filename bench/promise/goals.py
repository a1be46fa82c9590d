"""Judges the goals of the estimates: coverage and width of the worst class in each scenario.

A verdict's note names all classes that miss the goal. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bench.overhead.goals import Verdict
from bench.promise.coverage import Coverage
from router.core.conformal import COVERAGE

OFF: Final = 0.03  # maximum distance of the coverage from 90 %
WIDTH: Final = 0.5  # maximum median width, as a share of the range of the class's TTFTs
LEAST: Final = 1000  # the note names classes with fewer estimates


def judge(rows: Sequence[Coverage]) -> list[Verdict]:
    found: list[Verdict] = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        each = [row for row in rows if row.scenario == scenario]
        goal = f"{COVERAGE - OFF:.0%} to {COVERAGE + OFF:.0%}"
        found.append(_worst(f"{scenario}: coverage", goal, OFF, each, _off, _covered))
        goal = f"≤ {WIDTH:g} of the range"
        found.append(_worst(f"{scenario}: median width", goal, WIDTH, each, _width, _relative))
    return found


def _worst(
    name: str,
    goal: str,
    limit: float,
    rows: Sequence[Coverage],
    value: Callable[[Coverage], float | None],
    words: Callable[[Coverage], str],
) -> Verdict:
    values = {row: found for row in rows if (found := value(row)) is not None}
    if not values:
        return Verdict(name, goal, limit, None, "no class has an estimate")
    worst = max(values, key=values.__getitem__)
    notes = [f"worst: {worst.name}"]
    missing = [row.name for row, found in values.items() if found > limit]
    if len(missing) > 1:
        notes.append(f"missed by {', '.join(missing)}")
    few = [row.name for row in rows if row.estimated < LEAST]
    if few:
        notes.append(f"fewer than {LEAST} estimates: {', '.join(few)}")
    return Verdict(name, goal, limit, values[worst], "; ".join(notes), words(worst))


def _off(row: Coverage) -> float | None:
    return None if row.covered is None else abs(row.covered - COVERAGE)


def _covered(row: Coverage) -> str:
    return f"{row.covered:.1%}"


def _width(row: Coverage) -> float | None:
    return row.relative_width


def _relative(row: Coverage) -> str:
    return f"{row.relative_width:.2f}"
