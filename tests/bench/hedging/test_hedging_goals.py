"""Verdicts of hedging: the limits themselves, and missing figures."""

from __future__ import annotations

from math import inf

import pytest

from bench.hedging import goals
from bench.hedging.simulated import cases, harm, world
from bench.hedging.simulated.task import Class, Result
from bench.overhead.goals import Verdict


def test_a_cut_is_met_at_its_limit_and_not_above() -> None:
    met = goals.cut("p99", 10.0, 4.0, 0.6)
    assert met.met and (met.reached, met.here) == ("-60.0 %", "-60.0 %")
    short = goals.cut("p99", 10.0, 4.1, 0.6)
    assert not short.met and short.words().startswith("missed by 2")


def test_no_worse_is_met_at_its_limit_and_not_above() -> None:
    assert goals.kept("p99", 100.0, 102.0, 0.02).met
    assert goals.kept("p99", 100.0, 50.0, 0.02).met
    assert not goals.kept("p99", 100.0, 102.1, 0.02).met
    assert not goals.kept("p99", 100.0, inf, 0.02).met


def test_shares_and_times() -> None:
    assert goals.within("extra", 0.05, 0.05).met
    assert not goals.within("extra", 0.051, 0.05).met
    assert goals.times("slowest", 4.0, 2.0, 2.0, "normal").met
    assert not goals.times("slowest", 4.1, 2.0, 2.0, "normal").met


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


# -- the cases ------------------------------------------------------------------------------------


def made(urgent: list[float], other: list[float], wasted: int = 0) -> Result:
    high, normal = Class(), Class()
    high.ttfts.extend(urgent)
    normal.ttfts.extend(other)
    normal.prefill_tokens, high.wasted_tokens = 1000, wasted
    return Result("x", {world.URGENT: high, world.OTHER: normal}, [])


def rows(**slower: float) -> dict[tuple[str, str], cases.Row]:
    """All cases with equal rows, except that with hedges `high` and `other` are slower by a
    factor.
    """
    high, other = slower.get("high", 1.0), slower.get("other", 1.0)
    wasted = int(slower.get("wasted", 0))
    return {
        (case.name, label): cases.Row(
            case, made([high * 1.0] * 100, [other * 1.0] * 100, wasted) if label == cases.WITH
            else made([1.0] * 100, [1.0] * 100),
        )
        for case in cases.CASES
        for label in (cases.WITHOUT, cases.WITH)
    }  # fmt: skip


def missed(**slower: float) -> set[str]:
    return {verdict.name for verdict in cases.judge(rows(**slower)) if not verdict.met}


def test_what_is_promised_of_each_case() -> None:
    assert missed(high=0.4) == set()
    assert missed(high=0.41) == {"half: high, p99 TTFT"}
    slowed = ("half", "full", "slow", "mixed")
    assert missed(high=1.03) == {f"{case}: high, p99 TTFT" for case in slowed}
    assert missed(high=2.1) == {
        *(f"{case}: high, p99 TTFT" for case in slowed),
        "frozen: high, slowest",
    }
    names = ("half", "full", "slow", "frozen", "mixed")
    assert missed(high=0.4, other=1.04) == {f"{case}: others, p99 TTFT" for case in names}
    assert missed(high=0.4, wasted=51) == {f"{case}: extra prefill tokens" for case in names}


def test_a_request_without_an_answer_is_the_slowest() -> None:
    assert missed(high=inf) >= {"frozen: high, slowest", "full: high, p99 TTFT"}


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
        return Result("x", {world.MOST_URGENT: seen}, [])

    points = [
        harm.Point("way", (place + 1) / 10, alone(ratio), alone(1.0))
        for place, ratio in enumerate(ratios)
    ]
    assert harm.turns(points, lambda point: point.mean) == words
