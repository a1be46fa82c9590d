"""The contestants, the goals, and one quick run."""

from __future__ import annotations

import argparse
import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from bench.plan import cli, contestants
from bench.plan.cli import LATE_H, TWO_KINDS
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
from bench.plan.fleet import Outcome
from bench.plan.found import MARK, Row, judge
from bench.plan.traffic import DAY, STEP_S, WEEK, Demand, seeded
from bench.plan.world import THROUGHPUT, Counts, PoolKey, World
from router.plan.forecasts.forecast import Forecast
from router.plan.forecasts.seasonal_naive import SeasonalNaive

FULL = THROUGHPUT * STEP_S


def row(contestant: str, *hours: float) -> Row:
    outcomes = [None if one == inf else Outcome(one, 0.995, one) for one in hours]
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


def test_costs_are_judged_if_they_differ_from_gpu_hours() -> None:
    rows = [
        Row("two", name, [1.0] * 6, [Outcome(100.0, 0.995, cost)] * 6)
        for name, cost in ((STATIC, 90.0), (REACTIVE, 60.0), (PLAN, 50.0), (BOTH, 40.0))
    ]
    said = [verdict.words() for verdict in judge(rows)]
    assert len(said) == 6
    assert [words.startswith("met") for words in said] == [False] * 3 + [True, False, True]


def test_the_cheapest_knob_that_attains_counts() -> None:
    by_knob = {
        0.9: Outcome(50.0, 0.98, 5.0),
        0.8: Outcome(80.0, 0.99, 6.0),
        0.7: Outcome(70.0, 1.0, 7.0),
    }
    assert cheapest(by_knob) == (0.8, by_knob[0.8])
    assert cheapest({0.9: by_knob[0.9]}) == (inf, None)


KEY = PoolKey("", "gpu")


def world(*loads: float) -> World:
    return World("x", {"": Demand("x", tuple(load * FULL for load in loads), 0.8)}, 300.0)


def gpus(count: int) -> Counts:
    return {KEY: count}


def test_the_rule_sees_the_last_step_only() -> None:
    wanted = reactive_controller(world(1.0, 4.0, 9.0), 0.5)
    assert wanted(1, gpus(2)) == gpus(2)
    assert wanted(2, gpus(2)) == gpus(8)


def known(load: float) -> dict[int, Forecast]:
    high = (load * FULL * WINDOW,) * 2
    return {n: Forecast("known", (), high, high, high) for n in range(1, 4)}


def test_the_plan_follows_its_forecast_at_each_window() -> None:
    one = world(*[1.0] * 12)
    wanted = plan_controller(one, types_of(one, 0.9), {"": known(4.5)})
    assert wanted(WINDOW, gpus(1)) == gpus(5)
    assert wanted(WINDOW + 1, gpus(3)) == gpus(3)
    assert windowed(one.demands[""].tokens)[0] == pytest.approx(3 * FULL)


def test_the_rule_adds_replicas_between_two_plans() -> None:
    def plan(step: int, present: Counts) -> Counts:
        return present if step % WINDOW else gpus(2)

    wanted = with_rule(world(*[1.0] * 4, 4.6, 0.1, 0.1), plan)
    assert wanted(3, gpus(5)) == gpus(2)
    assert wanted(5, gpus(5)) == gpus(6)  # 4.6 of 5 replicas were busy
    assert wanted(7, gpus(5)) == gpus(5)  # it stops none


def two(spill: float) -> World:
    loads = Demand("x", (2.0 * FULL,) * 12, 0.8)
    return World("x", {"eu": loads, "us": loads}, 300.0, TWO_KINDS, spill)


@pytest.mark.parametrize(
    ("spill", "eu", "us"),
    [
        (0.0, {"on-demand": 1, "spot": 8}, {"on-demand": 1, "spot": 2}),
        # 30 % of 12 replicas: six spot replicas of the region us have room for them.
        (0.3, {"on-demand": 1, "spot": 8}, {"on-demand": 1, "spot": 5}),
    ],
)
def test_the_plan_uses_cheap_kinds_and_the_other_region(
    spill: float, eu: dict[str, int], us: dict[str, int]
) -> None:
    one = two(spill)
    load = 9.0 if spill == 0.0 else 12.0
    ahead = {"eu": known(load), "us": known(3.0)}
    nothing = dict.fromkeys(one.pools, 0)
    found = plan_controller(one, types_of(one, 1.0), ahead)(WINDOW, nothing)
    assert {key.kind: n for key, n in found.items() if key.region == "eu"} == eu
    assert {key.kind: n for key, n in found.items() if key.region == "us"} == us


def test_a_fleet_has_cheap_kinds_first() -> None:
    assert two(0.0).spread("eu", 5) == {("eu", "on-demand"): 1, ("eu", "spot"): 4}
    assert two(0.0).spread("eu", 20) == {("eu", "on-demand"): 12, ("eu", "spot"): 8}
    assert two(0.0).spread("eu", 0) == {("eu", "on-demand"): 1, ("eu", "spot"): 0}


def test_the_days_of_regions_begin_at_different_times() -> None:
    noon = {
        late_h: max(range(DAY), key=lambda step: sum(one.tokens[step::DAY]))
        for late_h in (0.0, LATE_H)
        for one in [seeded(1, "x", late_h)]
    }
    assert (noon[LATE_H] - noon[0.0]) * STEP_S / 3600.0 == pytest.approx(LATE_H, abs=2.0)


def test_a_quick_run_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*args: Any) -> Demand:
        """A week of history, and one judged day, between weekdays."""
        whole = seeded(*args)
        return Demand(whole.name, whole.tokens[2 * DAY : WEEK + 3 * DAY], whole.prompt_share)

    monkeypatch.setattr(cli, "seeded", short)
    monkeypatch.setattr(contestants, "UTILISATIONS", (0.6, 0.8))
    monkeypatch.setattr(contestants, "methods", lambda *_: [SeasonalNaive(DAY // WINDOW, "day")])
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    file = tmp_path / "found.json"
    assert cli.main(parser.parse_args(["--quick", "--json", str(file)])) == 0
    (found,) = json.loads(file.read_text())
    week, regions = found["rows"][: len(NAMES)], found["rows"][-len(NAMES) :]
    hours = {one["contestant"]: one["gpu_hours"][0] for one in week}
    assert hours[BOTH] < hours[STATIC]
    assert week[0]["costs"] == week[0]["gpu_hours"]
    costs = {one["contestant"]: one["costs"][0] for one in regions}
    assert costs[BOTH] < costs[STATIC]
    out = capsys.readouterr().out
    assert "week, start 5 min: GPU-hours, plan over static" in out
    assert "two regions, spot, start 5 min: cost, plan over static" in out


def test_a_missing_trace_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.main(parser.parse_args(["--quick", "--azure", "/nowhere.csv"])) == 2
    assert "/nowhere.csv: No such file or directory" in capsys.readouterr().err
