"""The goals of hedging as verdicts: each compares two runs of the same traffic in one bench.

Every verdict's value is one that should be small; what was reached is also said in words.
"""

from __future__ import annotations

from math import inf, isfinite

from bench.overhead.goals import Verdict


def change(before: float, after: float) -> str:
    """As a percentage with its sign: 0.4 and 0.1 are -75 %."""
    return f"{100.0 * (after / before - 1.0):+.1f} %"


def cut(
    name: str, without: float | None, with_: float | None, by: float, note: str = ""
) -> Verdict:
    """The figure with hedges is less than without by the share `by` at least."""
    return _against(name, f"−{by:.0%} or better", without, with_, 1.0 - by, note)


def kept(
    name: str, without: float | None, with_: float | None, by: float, note: str = ""
) -> Verdict:
    """The figure with hedges is no more than that without and the share `by` of it."""
    return _against(name, f"+{by:.0%} at most", without, with_, 1.0 + by, note)


def within(name: str, share: float | None, limit: float, note: str = "") -> Verdict:
    """A share of a whole is `limit` at most."""
    goal = f"{limit:.0%} at most"
    if share is None:
        return Verdict(name, goal, limit, None, note or "nothing was counted")
    return Verdict(name, goal, limit, share, note, f"{share:.2%}")


def times(
    name: str, value: float | None, base: float | None, limit: float, of: str, note: str = ""
) -> Verdict:
    """`value` is `limit` times `base` at most; `of` says what the base is."""
    goal = f"{limit:g} × {of} at most"
    if value is None or not base:
        return Verdict(name, goal, limit, None, note or "nothing was counted")
    return Verdict(name, goal, limit, value / base, note, f"{value / base:.2f} ×")


def _against(
    name: str, goal: str, without: float | None, with_: float | None, limit: float, note: str
) -> Verdict:
    if without is None or with_ is None or not 0.0 < without < inf:
        return Verdict(name, goal, limit, None, note or "nothing to compare")
    words = change(without, with_) if isfinite(with_) else "never"
    return Verdict(name, goal, limit, with_ / without, note, words)
