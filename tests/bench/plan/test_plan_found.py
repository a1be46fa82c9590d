"""The goals, and one quick run."""

import argparse
import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from bench.plan import cli, contestants, found as found_module
from bench.plan.contestants import (
    EQUAL,
    HPA,
    NAMES,
    PLAN,
    REACTIVE,
    SAGESERVE,
    STATIC,
    UTILISATIONS,
)
from bench.plan.fleet import DAY, STEP_S, WEEK, Demand, Outcome, seeded
from bench.plan.found import MARK, Row, judge
from router.lab.plan.forecasts.method import DayProfile


def row(contestant: str, *hours: float) -> Row:
    outcomes = [None if one == inf else Outcome(one, 0.995, one) for one in hours]
    return Row("week", contestant, [1.0] * len(hours), outcomes)


def words(plan: float, other: float, seeds: int = 8) -> list[str]:
    others = (STATIC, HPA, REACTIVE, SAGESERVE)
    rows = [row(name, *[other] * seeds) for name in others]
    rows += [row(name, *[plan] * seeds) for name in (PLAN, EQUAL)]
    return [verdict.words() for verdict in judge(rows)]


def test_the_plan_must_save_a_quarter_and_cost_no_more_than_the_hpa() -> None:
    assert all(one.startswith("met") for one in words(70.0, 100.0))
    *quarter, hpa = words(80.0, 100.0)
    assert len(quarter) == 3
    assert all(one.startswith("missed by 6.7") for one in quarter)
    assert hpa.startswith("met")
    assert words(110.0, 100.0)[-1].startswith("missed")
    assert all(one.startswith("open") for one in words(70.0, 100.0, seeds=1))
    assert MARK == 0.75


def test_a_plan_that_cannot_attain_misses() -> None:
    rows = [row(name, *[1.0] * 6) for name in (STATIC, HPA, REACTIVE, SAGESERVE)]
    rows += [row(PLAN, *[inf] * 6), row(EQUAL, *[0.5] * 6)]
    assert [verdict.missed for verdict in judge(rows)] == [False, True, True, True]


def test_costs_are_judged_if_they_differ_from_gpu_hours() -> None:
    costs = dict(zip(NAMES, (90.0, 60.0, 60.0, 60.0, 50.0, 40.0), strict=True))
    rows = [
        Row("two", name, [1.0] * 6, [Outcome(100.0, 0.995, cost)] * 6)
        for name, cost in costs.items()
    ]
    said = [verdict.words() for verdict in judge(rows)]
    assert len(said) == 8
    assert [one.startswith("met") for one in said[4:]] == [True, False, True, True]


def parsed(*args: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return parser.parse_args(args)


def test_a_quick_run_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*args: Any) -> Demand:
        """A week of history, and six judged hours of a weekday."""
        whole = seeded(*args)
        end = WEEK + 3 * DAY + DAY // 2
        return Demand(whole.name, whole.tokens[end - WEEK - DAY // 4 : end], whole.prompt_share)

    monkeypatch.setattr(found_module, "seeded", short)
    monkeypatch.setattr(contestants, "UTILISATIONS", UTILISATIONS[::8])
    monkeypatch.setattr(contestants, "methods", lambda *_: [DayProfile(DAY)])
    file, runs = tmp_path / "found.json", tmp_path / "runs.jsonl"
    args = parsed("--quick", "--jobs", "1", "--json", str(file), "--runs", str(runs))
    assert cli.main(args) == 0
    (found,) = json.loads(file.read_text())
    week, regions = found["rows"][: len(NAMES)], found["rows"][len(NAMES) :]
    hours = {one["contestant"]: one["gpu_hours"][0] for one in week}
    assert hours[PLAN] < hours[STATIC]
    assert week[0]["costs"] == week[0]["gpu_hours"]
    costs = {one["contestant"]: one["costs"][0] for one in regions}
    assert tuple(costs) == (STATIC, HPA, REACTIVE, PLAN)
    assert costs[PLAN] < costs[STATIC]
    out = capsys.readouterr().out
    assert "week, start 5 min: GPU-hours, plan over static" in out
    assert "two regions, spot, start 5 min: cost, plan over static" in out

    def never(*_: object) -> None:
        raise AssertionError("a finished run is not repeated")

    monkeypatch.setattr(found_module, "contests", never)
    assert cli.main(args) == 0
    assert capsys.readouterr().out == out
    args.case = "week"
    assert cli.main(args) == 0
    out = capsys.readouterr().out
    assert "week, start 5 min" in out
    assert "two regions, spot" not in out
    assert STEP_S == 300.0
