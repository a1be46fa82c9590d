"""The tables' figures: regret, the load from which affinity pays, reuse, goals."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, strategies as st

from bench.findings.found import Found, markdown, text
from bench.fleet.simulated import ladder, loads, matrix
from bench.fleet.simulated.ladder import highest
from bench.fleet.simulated.loads import Point
from bench.fleet.simulated.task import Result, Task, play
from bench.fleet.simulated.worlds import FLEET, LLMD, Warmed, routed
from bench.overhead.goals import Verdict
from router.core.errors import Reason
from router.core.text.table import Column, build
from router.lab.replay.report.run import Run
from router.lab.replay.report.slo import Slo
from router.lab.replay.report.summary import Summary
from router.lab.simulator.hedges import Hedges
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import resized
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


def task(policy: str = "least_load", **changes: object) -> Task:
    traffic = partial(
        Warmed,
        rate=4.0,
        duration_s=10.0,
        warm_s=5.0,
        groups=10,
        prefix_tokens=512,
        question_tokens=128,
        output_tokens=4,
    )
    plain = Task(
        policy=policy,
        scenario=routed(resized(FLEET, 2), policy),
        traffic=traffic,
        slo=Slo(2.0, 0.2),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_only_what_arrives_in_time_is_counted() -> None:
    everything, late = play([task(), task(measure_from=5.0)])
    assert everything.totals.requests == everything.summary.all.requests
    assert late.totals == everything.totals
    assert late.summary.all.requests == everything.summary.all.requests - 10
    assert late.summary.began >= 5.0 > everything.summary.began
    assert sum(one.samples for one in late.summary.series) < sum(
        one.samples for one in everything.summary.series
    )


def test_results_are_in_the_order_of_the_tasks_in_any_number_of_processes() -> None:
    tasks = [task(policy) for policy in ("random", "kv_aware", "least_load")]
    alone, together = play(tasks, 1), play(tasks, 2)
    assert [result.policy for result in together] == ["random", "kv_aware", "least_load"]
    for one, other in zip(alone, together, strict=True):
        assert isinstance(one, Run)
        assert one.summary.document() == other.summary.document()
        assert one.totals == other.totals


def test_a_result_says_what_it_comes_to() -> None:
    (result,) = play([task()])
    group = result.summary.all
    assert result.ttft_p90 == group.quantile(group.ttft, 0.9)
    assert result.kept == group.attainment == 1.0
    assert 0.0 < result.busy < 1.0
    (never,) = play([task(measure_from=1e9)])
    assert never.ttft_p90 == float("inf")
    assert never.kept == 0.0


def upto(limit: float) -> tuple[list[list[float]], object]:
    """A predicate that holds up to `limit`, and the values it was called with."""
    asked: list[list[float]] = []

    def holds(values: Sequence[float]) -> list[bool]:
        asked.append(list(values))
        return [value <= limit for value in values]

    return asked, holds


@given(
    limit=st.floats(0.01, 1000.0),
    low=st.floats(0.1, 10.0),
    width=st.floats(1.1, 10.0),
    precision=st.floats(0.01, 0.5),
)
def test_it_is_found_to_the_precision_wherever_it_begins(
    limit: float, low: float, width: float, precision: float
) -> None:
    _, holds = upto(limit)
    found = highest(holds, low, low * width, precision)  # type: ignore[arg-type]
    assert found <= limit < found * (1.0 + precision) * (1.0 + 1e-9)


def test_what_holds_again_after_a_failure_is_not_believed() -> None:
    def holds(values: Sequence[float]) -> list[bool]:
        return [value <= 2.0 or 4.0 <= value <= 5.0 for value in values]

    assert 1.9 < highest(holds, 1.0, 8.0, 0.01) <= 2.0


@pytest.mark.parametrize("answer", [True, False])
def test_it_gives_up_where_there_is_no_limit(answer: bool) -> None:
    with pytest.raises(ValueError, match="begins to fail"):
        highest(lambda values: [answer] * len(values), 1.0, 2.0, 0.01)
