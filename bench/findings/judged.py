"""The verdict of a goal on a ratio of two contestants, judged by the interval over paired runs.

Must never judge by the value alone: a difference that is smaller than the noise is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from bench.findings.intervals import PAIRS_MIN, Interval, judged
from bench.overhead.goals import Verdict


def verdict(
    name: str,
    goal: str,
    limit: float,
    found: Interval,
    noise: float | None,
    notes: Sequence[str] = (),
) -> Verdict:
    """Whether the ratio `found` keeps `limit`; lower is better.

    `noise`: the ratio's distance from 1 for a contestant against itself; `None`: not measured, and
    then no goal is missed.
    """
    words = [*notes, "noise not measured" if noise is None else f"noise {noise:.1%}"]
    if not found.is_enough:
        words.append(f"{found.pairs} of at least {PAIRS_MIN} rounds")
    return Verdict(
        name,
        goal,
        limit,
        found.value,
        "; ".join(words),
        spread=(found.low, found.high) if found.is_enough else None,
        outcome=judged(found, limit, inf if noise is None else noise),
    )
