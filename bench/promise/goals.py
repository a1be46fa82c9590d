"""Judges the goals of the estimates: coverage and width of the worst class in each scenario.

One run is judged by its figures, several runs by the interval of their mean (`findings.judged`). A
verdict's note names all classes that miss the goal or leave it open. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from bench.findings.judged import judged_distance, judged_mean
from bench.overhead.goals import Verdict
from bench.promise.coverage import Coverage
from router.core.conformal import COVERAGE

OFF: Final = 0.03  # maximum distance of the coverage from 90 %
WIDTH: Final = 0.5  # maximum median width, as a share of the range of the class's TTFTs
LEAST: Final = 1000  # the note names classes with fewer estimates
_COVERED: Final = f"{COVERAGE - OFF:.0%} to {COVERAGE + OFF:.0%}"
_NARROW: Final = f"≤ {WIDTH:g} of the range"

Classes = Sequence[Sequence[Coverage]]  # for each class of a scenario, its runs


def judge(rows: Sequence[Coverage]) -> list[Verdict]:
    """Judge one run per class and scenario by its figures alone."""
    return _by_scenario([[row] for row in rows], _covered, _relative)


def judge_runs(rows: Classes) -> list[Verdict]:
    """Judge the runs of each class and scenario by the interval of their mean."""
    return _by_scenario(rows, _mean_covered, _mean_relative)


# Judges the runs of one class. The arguments: the name of the goal, and one figure for each run.
_Judge = Callable[[str, Sequence[float]], Verdict]


def _by_scenario(rows: Classes, coverage: _Judge, width: _Judge) -> list[Verdict]:
    found: list[Verdict] = []
    for scenario in dict.fromkeys(runs[0].scenario for runs in rows):
        each = {runs[0].name: runs for runs in rows if runs[0].scenario == scenario}
        name = f"{scenario}: coverage"
        found.append(_worst(Verdict(name, _COVERED, OFF, None), each, _share_covered, coverage))
        name = f"{scenario}: median width"
        found.append(_worst(Verdict(name, _NARROW, WIDTH, None), each, _relative_width, width))
    return found


def _worst(
    empty: Verdict,
    rows: Mapping[str, Sequence[Coverage]],
    figure: Callable[[Coverage], float | None],
    judge: _Judge,
) -> Verdict:
    """Return the verdict on the worst class, or `empty` if no class has a figure."""
    verdicts: dict[str, Verdict] = {}
    for name, runs in rows.items():
        if values := [value for run in runs if (value := figure(run)) is not None]:
            verdicts[name] = judge(empty.name, values)
    if not verdicts:
        return replace(empty, note="no class has an estimate")
    worst = max(verdicts, key=lambda name: _badness(verdicts[name]))
    notes = [f"worst: {worst}"]
    missing = [name for name, verdict in verdicts.items() if verdict.missed]
    if len(missing) > 1:
        notes.append(f"missed by {', '.join(missing)}")
    undecided = [name for name, one in verdicts.items() if not one.met and not one.missed]
    if undecided and undecided != [worst]:
        notes.append(f"open for {', '.join(undecided)}")
    few = [name for name, runs in rows.items() if sum(run.estimated for run in runs) < LEAST]
    if few:
        notes.append(f"fewer than {LEAST} estimates: {', '.join(few)}")
    return replace(verdicts[worst], note="; ".join(notes))


def _badness(verdict: Verdict) -> tuple[int, float]:
    """Return a key by which a missed goal is worse than an open one, and that worse than a met
    one."""
    assert verdict.value is not None
    return 2 if verdict.missed else 0 if verdict.met else 1, verdict.value


def _share_covered(run: Coverage) -> float | None:
    return run.covered


def _relative_width(run: Coverage) -> float | None:
    return run.relative_width


def _covered(name: str, values: Sequence[float]) -> Verdict:
    (covered,) = values
    return Verdict(name, _COVERED, OFF, abs(covered - COVERAGE), "", f"{covered:.1%}")


def _relative(name: str, values: Sequence[float]) -> Verdict:
    (relative,) = values
    return Verdict(name, _NARROW, WIDTH, relative, "", f"{relative:.2f}")


def _mean_covered(name: str, values: Sequence[float]) -> Verdict:
    return judged_distance(name, _COVERED, values, COVERAGE, OFF, "{:.1%}")


def _mean_relative(name: str, values: Sequence[float]) -> Verdict:
    return judged_mean(name, _NARROW, values, WIDTH, "{:.2f}")
