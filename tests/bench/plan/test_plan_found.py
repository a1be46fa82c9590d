"""The contestants, the goals, and one quick run."""

from __future__ import annotations

import argparse
import json
from math import inf
from pathlib import Path

import pytest

from bench.plan import cli, contestants
from bench.plan.contestants import (
    BOTH,
    NAMES,
    PLAN,
    REACTIVE,
    STATIC,
    WINDOW,
    cheapest,
    plan_controller,
    reactive_controller,
    types_of,
    windowed,
    with_rule,
)
from bench.plan.fleet import THROUGHPUT, Outcome
from bench.plan.found import MARK, Row, judge
from bench.plan.traffic import STEP_S, Demand
from router.plan.forecasts.forecast import Forecast

FULL = THROUGHPUT * STEP_S


def row(contestant: str, *hours: float) -> Row:
    outcomes = [None if one == inf else Outcome(one, 0.995) for one in hours]
    return Row("week", contestant, [1.0] * len(hours), outcomes)


def words(plan: float, other: float, seeds: int = 8) -> str:
    rows = [row(PLAN, *[plan] * seeds), row(STATIC, *[100.0] * seeds)]
    rows += [row(REACTIVE, *[other] * seeds), row(BOTH, *[plan] * seeds)]
    return judge(rows)[1].words()


def test_the_plan_must_save_a_quarter() -> None:
    assert words(70.0, 100.0).startswith("met")
    assert words(80.0, 100.0).startswith("missed by 6.7")
    assert words(70.0, 100.0, seeds=1).startswith("open")
    assert MARK == 0.75


def test_a_plan_that_cannot_attain_misses() -> None:
    rows = [row(PLAN, *[inf] * 6), row(STATIC, *[1.0] * 6), row(REACTIVE, *[1.0] * 6)]
    rows.append(row(BOTH, *[0.5] * 6))
    assert [verdict.missed for verdict in judge(rows)] == [True, True, False]


def test_the_cheapest_knob_that_attains_counts() -> None:
    by_knob = {0.9: Outcome(50.0, 0.98), 0.8: Outcome(60.0, 0.99), 0.7: Outcome(70.0, 1.0)}
    assert cheapest(by_knob) == (0.8, by_knob[0.8])
    assert cheapest({0.9: Outcome(50.0, 0.98)}) == (inf, None)


def demand(*loads: float) -> Demand:
    return Demand("x", tuple(load * FULL for load in loads), 0.8)


def test_the_rule_sees_the_last_step_only() -> None:
    wanted = reactive_controller(demand(1.0, 4.0, 9.0), 0.5)
    assert wanted(1, 2) == 2
    assert wanted(2, 2) == 8


def test_the_plan_follows_its_forecast_at_each_window() -> None:
    tokens = demand(*[1.0] * 12)
    high = (4.5 * FULL * WINDOW,) * 2
    forecasts = {n: Forecast("known", (), high, high, high) for n in range(1, 4)}
    wanted = plan_controller(tokens, types_of(0.9, 300.0), forecasts)
    assert wanted(WINDOW, 1) == 5
    assert wanted(WINDOW + 1, 3) == 3
    assert windowed(tokens.tokens)[0] == pytest.approx(3 * FULL)


def test_the_rule_adds_replicas_between_two_plans() -> None:
    def plan(step: int, present: int) -> int:
        return present if step % WINDOW else 2

    wanted = with_rule(demand(*[1.0] * 4, 4.6, 0.1, 0.1), plan)
    assert wanted(3, 5) == 2
    assert wanted(5, 5) == 6  # 4.6 of 5 replicas were busy
    assert wanted(7, 5) == 5  # it stops none


def test_a_quick_run_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contestants, "UTILISATIONS", (0.4, 0.7))
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    file = tmp_path / "found.json"
    assert cli.main(parser.parse_args(["--quick", "--json", str(file)])) == 0
    (found,) = json.loads(file.read_text())
    hours = {one["contestant"]: one["gpu_hours"][0] for one in found["rows"][: len(NAMES)]}
    assert hours[BOTH] < hours[STATIC]
    assert "week, start 5 min: GPU-hours, plan over static" in capsys.readouterr().out


def test_a_missing_trace_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.main(parser.parse_args(["--quick", "--azure", "/nowhere.csv"])) == 2
    assert "/nowhere.csv: No such file or directory" in capsys.readouterr().err
