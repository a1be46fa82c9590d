"""Verdicts of hedging: the limits themselves, and missing figures."""

from __future__ import annotations

from math import inf
from typing import cast

import pytest

from bench.hedging import goals
from bench.hedging.simulated import harm, world
from bench.hedging.simulated.world import Class, Result
from bench.overhead.goals import Verdict
from router.lab.simulator.totals import Totals


def test_no_worse_is_met_at_its_limit_and_not_above() -> None:
    assert goals.kept("p99", 100.0, 102.0, 0.02).met
    assert goals.kept("p99", 100.0, 50.0, 0.02).met
    assert not goals.kept("p99", 100.0, 102.1, 0.02).met
    assert not goals.kept("p99", 100.0, inf, 0.02).met


@pytest.mark.parametrize(
    "verdict",
    [
        goals.cut("p99", None, 1.0, 0.6),
        goals.kept("p99", inf, 1.0, 0.02),
        goals.kept("p99", 0.0, 1.0, 0.02),
        goals.within("extra", None, 0.05),
        goals.times("slowest", 1.0, None, 2.0, "normal"),
    ],
)
def test_what_cannot_be_judged_is_not_met(verdict: Verdict) -> None:
    assert not verdict.met
    assert verdict.here == "-" and verdict.words().startswith("not measured")


# -- where it turns -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ([0.5, 0.9, 1.1, 1.2], "from a load of 0.3 on"),
        ([0.5, 1.1, 0.9, 1.2], "from a load of 0.4 on"),
        ([0.5, 0.9, 0.9, 1.0], "at no load of this run"),
        ([1.5, 1.9, 1.9, 1.1], "from a load of 0.1 on"),
    ],
)
def test_from_which_load_on_it_harms(ratios: list[float], words: str) -> None:
    def alone(ttft: float) -> Result:
        seen = Class()
        seen.ttfts.append(ttft)
        return Result("x", {world.MOST_URGENT: seen}, cast(Totals, None))

    points = [
        harm.Point("way", (place + 1) / 10, alone(ratio), alone(1.0))
        for place, ratio in enumerate(ratios)
    ]
    assert harm.turns(points, lambda point: point.mean) == words
