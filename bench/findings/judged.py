"""A goal that is judged by an interval of paired figures: met, missed or open.

The module `intervals` explains the interval, the noise and the judgement. A judged figure is a
ratio to another contestant's figure, a share, or a mean. Must never say that a goal is met or
missed if `intervals.judged` says that it is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from bench.findings.intervals import (
    MET,
    MISSED,
    OPEN,
    PAIRS_MIN,
    Interval,
    difference,
    judged as judgement,
    ratio,
)
from bench.overhead.goals import Verdict, excess


@dataclass(frozen=True, slots=True)
class Judged(Verdict):
    """A judged goal. `value` is the mean of its figure, and `spread` is the interval."""

    state: str = OPEN
    noise: float = 0.0  # relative difference of two runs of the same router or setting
    pairs: int = 0
    out_of_reach: str = ""  # reason why no router or setting can meet the goal, which is then open

    @property
    def met(self) -> bool:
        return self.state == MET

    @property
    def missed(self) -> bool:
        return self.state == MISSED

    def words(self) -> str:
        if self.value is None:
            return f"{MISSED if self.missed else 'not measured'}: {self.note}"
        tail = f" ({self.note})" if self.note else ""
        if self.state == MET:
            return "met" + tail
        if self.state == MISSED:
            amount = excess(self.value, self.limit) if isfinite(self.value) else "any amount"
            return f"missed by {amount}" + tail
        return f"open: {self._why_open()}" + tail

    def _why_open(self) -> str:
        if self.out_of_reach:
            assert self.value is not None
            return f"short by {excess(self.value, self.limit)}, out of reach: {self.out_of_reach}"
        if self.pairs < PAIRS_MIN:
            return f"{self.pairs} pairs, {PAIRS_MIN} are needed"
        assert self.spread is not None
        if self.spread[0] > self.limit:
            if self.noise == inf:
                return "above the limit, but the noise was not measured"
            return f"above the limit by less than the noise of {self.noise:.1%}"
        return "the limit is inside the interval"


def judged_ratio(
    name: str,
    goal: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    limit: float,
    noise: float = 0.0,
    note: str = "",
) -> Judged:
    """Judge whether the mean of `ours` is at most `limit` times the mean of `theirs`.

    Items with the same index are a pair.

    An infinite figure in `ours` misses the goal. The goal is not judged if `theirs` has an infinite
    figure or if any figure is 0.
    """
    if not ours or not all(0.0 < one < inf for one in theirs) or not min(ours) > 0.0:
        return Judged(name, goal, limit, None, note or "nothing to compare")
    if max(ours) == inf:
        return Judged(
            name, goal, limit, inf, note, "never", state=MISSED, noise=noise, pairs=len(ours)
        )
    found = ratio(ours, theirs)
    low, value, high = (f"{100.0 * (one - 1.0):+.1f}" for one in _parts(found))
    return _judged(name, goal, found, limit, noise, note, f"{value} % ({low} to {high} %)")


def judged_share(
    name: str, goal: str, shares: Sequence[float], limit: float, note: str = ""
) -> Judged:
    """Judge whether the mean of `shares` (one per run, 0 to 1) is at most `limit`."""
    return judged_mean(name, goal, shares, limit, "{:.2%}", note)


def judged_mean(
    name: str, goal: str, values: Sequence[float], limit: float, shape: str, note: str = ""
) -> Judged:
    """Judge whether the mean of `values` (one per run) is at most `limit`.

    `shape` is the format of a printed value, such as `{:.2f}`.
    """
    if not values:
        return Judged(name, goal, limit, None, note or "nothing was counted")
    found = difference(values, [0.0] * len(values))
    low, value, high = (shape.format(one) for one in _parts(found))
    return _judged(name, goal, found, limit, 0.0, note, f"{value} ({low} to {high})")


def judged_distance(
    name: str, goal: str, values: Sequence[float], center: float, limit: float, shape: str
) -> Judged:
    """Judge whether the mean of `values` (one per run) is at most `limit` away from `center`.

    The goal is met if the whole interval of the mean is that close to `center`, and missed if no
    part of it is. `shape` is the format of a printed value. There must be at least one value.
    """
    mean = difference(values, [center] * len(values))
    ends = (abs(mean.low), abs(mean.high))
    is_around = mean.low <= 0.0 <= mean.high
    found = Interval(0.0 if is_around else min(ends), abs(mean.value), max(ends), mean.pairs)
    low, value, high = (shape.format(center + one) for one in _parts(mean))
    return _judged(name, goal, found, limit, 0.0, "", f"{value} ({low} to {high})")


def judged_interval(
    name: str,
    goal: str,
    limit: float,
    found: Interval,
    noise: float | None,
    notes: Sequence[str] = (),
) -> Judged:
    """Judge whether a ratio is at most `limit`; lower is better.

    `noise` is the distance from 1 of the ratio of two runs of the same router or setting. It is
    `None` if it was not measured; the goal is then never judged as missed.
    """
    words = [*notes, "noise not measured" if noise is None else f"noise {noise:.1%}"]
    within = inf if noise is None else noise
    return Judged(
        name,
        goal,
        limit,
        found.value,
        "; ".join(words),
        spread=(found.low, found.high) if found.is_enough else None,
        state=judgement(found, limit, within),
        noise=within,
        pairs=found.pairs,
    )


def _parts(found: Interval) -> tuple[float, float, float]:
    return found.low, found.value, found.high


def _judged(
    name: str, goal: str, found: Interval, limit: float, noise: float, note: str, reached: str
) -> Judged:
    return Judged(
        name,
        goal,
        limit,
        found.value,
        note,
        reached,
        spread=(found.low, found.high),
        state=judgement(found, limit, noise),
        noise=noise,
        pairs=found.pairs,
    )
