"""The tables' figures: regret, the load from which affinity pays, reuse, goals."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from bench.findings.found import Found, markdown, text
from bench.fleet.simulated import ladder, loads, matrix
from bench.fleet.simulated.loads import Point
from bench.fleet.simulated.task import Result
from bench.fleet.simulated.worlds import LLMD
from bench.overhead.goals import Verdict
from router.core.errors import Reason
from router.core.text.table import Column, build
from router.lab.replay.report.summary import Summary
from router.lab.simulator.hedges import Hedges
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Arrival

TOTALS = Totals(
    events=1,
    requests=1,
    ends={},
    seconds=10.0,
    engines=(),
    polls=0,
    retries=0,
    ejections=0,
    policy_errors=0,
    evictions=0,
    hedges=Hedges.of(()),
)


def result(policy: str, ttfts: Sequence[float], cached: int = 0, failed: int = 0) -> Result:
    """A run whose requests had these times to first token."""
    summary = Summary(loads.SLO, LLMD.replicas)
    for number, ttft in enumerate([*ttfts, *[0.0] * failed]):
        outcome = Outcome(Arrival(number, float(number), 1024, 10), "r0", 0, float(number))
        outcome.first, outcome.ended = number + ttft, number + ttft + 0.1
        outcome.cached_tokens = cached
        if number >= len(ttfts):
            outcome.reason = Reason.TTFT_TIMEOUT
        summary.ended(outcome)
    return Result(policy, LLMD, summary, totals=TOTALS)


# -- the matrix -----------------------------------------------------------------------------------


def test_regret_is_against_the_best_of_each_scenario() -> None:
    here = {"a": result("a", [1.0] * 20), "b": result("b", [2.0] * 20)}
    there = {"a": result("a", [9.0] * 20), "b": result("b", [3.0] * 20)}
    rows = {row.policy: row for row in matrix.rank(["a", "b"], [here, there])}
    assert rows["a"].regret == pytest.approx([1.0, 3.0], rel=0.01)
    assert rows["b"].regret == pytest.approx([2.0, 1.0], rel=0.01)
    assert (rows["a"].worst, rows["b"].worst) == pytest.approx((3.0, 2.0), rel=0.01)
    assert rows["a"].kept == [1.0, 0.0]
    assert matrix._supports(list(rows.values())).startswith("The table speaks for b ")


# -- the loads ------------------------------------------------------------------------------------


def points(ours: Sequence[float], theirs: Sequence[float], other: str = "random") -> list[Point]:
    """Runs at 50, 90 and 110 % with these TTFTs, at ten requests per second each."""
    found = []
    for load, own, its in zip((50, 90, 110), ours, theirs, strict=True):
        found += [
            Point(load, 10.0, result("kv_aware", [own] * 20)),
            Point(load, 10.0, result(other, [its] * 20)),
        ]
    return found


def test_where_affinity_begins_to_pay_is_said_in_loads() -> None:
    said = loads.begins_to_pay(points([0.5, 0.5, 0.5], [0.5, 1.0, 9.0]), "random")
    assert "better from 90 % on" in said
    assert "a tenth more from 110 % on" in said
    said = loads.begins_to_pay(points([0.5, 0.5, 9.0], [9.0, 1.0, 1.0]), "random")
    assert "better from 50 to 90 %" in said
    assert "a tenth more from 50 to 50 %" in said
    same = points([1.0] * 3, [1.0] * 3)
    assert loads.begins_to_pay(same, "random").count("nowhere") == 2
    assert "better at every load" in loads.begins_to_pay(points([0.5] * 3, [1.0] * 3), "random")
    assert loads.begins_to_pay(same, "least_load") == ""


# -- the ladder -----------------------------------------------------------------------------------


def rungs(*means: float, cached: int = 0) -> dict[str, Result]:
    return {
        name: result(name, [mean] * 10, cached)
        for name, mean in zip(ladder.RUNGS, means, strict=True)
    }


def test_a_ladder_that_falls_meets_its_goals() -> None:
    reuse = ladder.Reuse(infinite=0.5, finite=0.4, asked=20, block_tokens=512)
    verdicts = ladder._judge(rungs(20.0, 5.0, 4.0, 3.0, cached=512), reuse)
    assert [v.met for v in verdicts] == [True] * 4
    assert verdicts[0].value == pytest.approx(0.8, rel=0.01)
    assert verdicts[1].value == pytest.approx(0.15, rel=0.01)
    # Each of ten requests found one of its two blocks: half; the bound is 0.4.
    assert verdicts[3].value == pytest.approx(0.4 / 0.5)


# -- how it is written down -----------------------------------------------------------------------


def test_a_finding_is_written_as_text_markdown_and_json() -> None:
    column: Column[int] = Column("n", "number", "s", lambda n: n, "low")
    found = Found(
        "A title",
        "How it came about.",
        build([2, 1], [column]),
        remarks=["a remark"],
        verdicts=[Verdict("a goal", "≤ 1", 1.0, 2.0)],
        figures={"more": 1},
    )
    plain, marked, document = text([found]), markdown([found]), found.as_json()
    for words in ("A title", "How it came about.", "number", "a remark", "missed by 100 %"):
        assert words in plain and words in marked
    assert "| **1** |" in marked and " 1*" in plain
    assert json.loads(json.dumps(document)) == document
    assert document["goals"][0]["met"] is False
    assert (document["rows"], document["more"]) == ([["2"], ["1"]], 1)
