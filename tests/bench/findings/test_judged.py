"""A verdict by an interval: three outcomes, with the bounds and the noise beside them."""

from __future__ import annotations

import pytest

from bench.findings.intervals import MET, MISSED, OPEN, Interval
from bench.findings.judged import verdict
from bench.overhead.goals import missed


@pytest.mark.parametrize(
    ("low", "high", "noise", "outcome", "words"),
    [
        (0.9, 1.04, 0.02, MET, "met (noise 2.0%)"),
        (0.9, 1.04, None, MET, "met (noise not measured)"),
        (1.08, 1.2, 0.02, MISSED, "missed by 4.8 % (noise 2.0%)"),
        (1.08, 1.2, 0.05, OPEN, "open (noise 5.0%)"),
        (1.08, 1.2, None, OPEN, "open (noise not measured)"),
        (1.04, 1.2, 0.0, OPEN, "open (noise 0.0%)"),
    ],
)
def test_an_outcome(low: float, high: float, noise: float | None, outcome: str, words: str) -> None:
    value = 1.0 if outcome == MET else 1.1
    found = verdict("a", "≤ 1.05", 1.05, Interval(low, value, high, 5), noise)
    assert found.outcome == outcome and found.words() == words
    assert found.here == f"{value:.2f} ({low:.2f} to {high:.2f})"
    assert (found.met, found.is_missed) == (outcome == MET, outcome == MISSED)
    assert missed([found], is_quick=False) == (outcome == MISSED)


def test_too_few_rounds_are_open_and_say_so() -> None:
    found = verdict("a", "≤ 1", 1.0, Interval(0.5, 0.5, 0.5, 2), 0.0, ["best: haproxy"])
    assert found.words() == "open (best: haproxy; noise 0.0%; 2 of at least 5 rounds)"
    assert found.here == "0.50"  # no bounds
