"""Judges goals of hedging. Each goal compares two runs of the same traffic in one bench.

Lower is better for every verdict's value. The measured value is also given as text.
"""

from __future__ import annotations

from math import inf, isfinite

from bench.overhead.goals import Verdict


def change(before: float, after: float) -> str:
    """Return the change as a signed percentage: from 0.4 to 0.1 is -75 %."""
    return f"{100.0 * (after / before - 1.0):+.1f} %"


def cut(
    name: str, without: float | None, with_: float | None, by: float, note: str = ""
) -> Verdict:
    """Judge that hedging lowers the figure by at least the share `by`."""
    return _against(name, f"−{by:.0%} or better", without, with_, 1.0 - by, note)


def kept(
    name: str, without: float | None, with_: float | None, by: float, note: str = ""
) -> Verdict:
    """Judge that hedging raises the figure by at most the share `by`."""
    return _against(name, f"+{by:.0%} at most", without, with_, 1.0 + by, note)


def within(name: str, share: float | None, limit: float, note: str = "") -> Verdict:
    """Judge that `share` is at most `limit`."""
    goal = f"{limit:.0%} at most"
    if share is None:
        return Verdict(name, goal, limit, None, note or "nothing was counted")
    return Verdict(name, goal, limit, share, note, f"{share:.2%}")


def times(
    name: str, value: float | None, base: float | None, limit: float, of: str, note: str = ""
) -> Verdict:
    """Judge that `value` is at most `limit` times `base`; `of` describes the base."""
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
