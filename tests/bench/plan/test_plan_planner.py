"""The controller that follows the router's plan."""

import pickle
from collections.abc import Mapping

import pytest

from bench.findings.stored import name
from bench.plan.contestants import (
    forecast_week,
    hpa_controller,
    plan_controller,
    reactive_controller,
    sageserve_controller,
    types_of,
)
from bench.plan.fleet import (
    DAY,
    STEP_S,
    THROUGHPUT,
    WEEK,
    Bursts,
    Controller,
    Counts,
    Demand,
    PoolKey,
    Seen,
    World,
    seeded,
)
from bench.plan.found import REGIONS_CASE, TWO_KINDS, WEEK_CASE, Case, Task
from router.lab.plan.forecasts.method import Forecast

FULL = THROUGHPUT * STEP_S
KEY = PoolKey("", "gpu")


def known(load: float) -> dict[int, Forecast]:
    high = (load * FULL,) * 3
    return {n: Forecast("known", (), high, high, high) for n in range(1, 4)}


def one_region() -> World:
    return World("x", {"": Demand("x", (FULL,) * 12, 0.8)}, 300.0)


def seen(present: Counts, queues: Mapping[str, float]) -> Seen:
    return Seen(present, present, {region: queue * FULL for region, queue in queues.items()})


def test_the_plan_serves_the_queue_and_stops_no_replica_meanwhile() -> None:
    one = one_region()
    plan = plan_controller(one, types_of(one, 0.9), {"": known(4.5)})
    assert plan(1, seen({KEY: 5}, {"": 1.8})) == {KEY: 7}
    assert plan(1, seen({KEY: 9}, {"": 0.1})) == {KEY: 9}


def two_regions(spill: float) -> World:
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
    one = two_regions(spill)
    ahead = {"eu": known(9.0 if spill == 0.0 else 12.0), "us": known(3.0)}
    nothing = seen(dict.fromkeys(one.pools, 0), {"eu": 0.0, "us": 0.0})
    found = plan_controller(one, types_of(one, 1.0), ahead)(1, nothing)
    assert {key.kind: n for key, n in found.items() if key.region == "eu"} == eu
    assert {key.kind: n for key, n in found.items() if key.region == "us"} == us


def test_a_forecast_has_only_the_steps_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other demand after a step changes no forecast of this step or of earlier ones."""
    monkeypatch.setattr("router.lab.plan.forecasts.backtest.Arima", _None)
    demand = seeded(1)
    end = WEEK + DAY
    changed = (*demand.tokens[: end - 5], *[0.0] * 5)
    found = [
        forecast_week(World("x", {"": Demand("x", tokens, 0.8)}, 1200.0))[""]
        for tokens in (demand.tokens[:end], changed)
    ]
    assert sorted(found[0]) == list(range(WEEK, end))
    assert [found[0][n] == found[1][n] for n in (WEEK, end - 5, end - 4)] == [True, True, False]
    assert found[0][WEEK].error is not None and found[0][WEEK].error < 0.1
    assert len(found[0][WEEK].high) == 6  # the lead time of 20 minutes and two more steps


class _None:
    """Instead of ARIMA, which takes long to fit: a method that needs a longer history."""

    name, least = "none", 1_000_000


def world(*loads: float) -> World:
    return World("x", {"": Demand("x", tuple(load * FULL for load in loads), 0.8)}, 300.0)


def asked(
    rule: Controller, step: int, present: int, serving: int | None = None, queue: float = 0.0
) -> int:
    """The replicas that a rule asks for. `queue`: in replicas for one step."""
    serves = present if serving is None else serving
    return rule(step, Seen({KEY: present}, {KEY: serves}, {"": queue * FULL}))[KEY]


def test_the_reactive_rule_sees_the_last_step_only() -> None:
    rule = reactive_controller(world(1.0, 4.0, 9.0), 0.5)
    assert asked(rule, 1, 2) == 2
    assert asked(rule, 2, 2) == 8


@pytest.mark.parametrize("make", [reactive_controller, hpa_controller])
def test_the_waiting_tokens_are_demand(make: type) -> None:
    assert asked(make(world(2.0), 0.5), 1, 4, queue=1.0) == 6


def test_the_hpa_keeps_its_target() -> None:
    steps = world(4.0, 4.3, 8.0, 2.0, 2.0, 2.0)
    rule = hpa_controller(steps, 0.5)
    assert asked(rule, 1, 4) == 8
    assert asked(rule, 2, 8) == 8  # 8 % above the target is within the tolerance
    assert asked(rule, 3, 8) == 16
    assert asked(rule, 4, 16) == 16  # the wish of five minutes ago counts
    assert asked(rule, 5, 16) == 4


def test_sageserves_rule_starts_one_replica_at_a_time() -> None:
    rule = sageserve_controller(world(9.0))
    assert asked(rule, 1, 4) == 5
    assert asked(rule, 1, 5, serving=4) == 5  # the first one does not serve yet
    assert asked(rule, 1, 18) == 18


def test_a_task_is_known_by_everything_that_decides_its_result() -> None:
    tasks = [
        Task(WEEK_CASE, 1),
        Task(WEEK_CASE, 2),
        Task(WEEK_CASE, 1, (300.0,)),
        Task(REGIONS_CASE, 1),
        Task(Case("x", Bursts("x", (0.5, 1.5), 0.9)), 1),
        Task(Case("x", Bursts("x", (0.6, 1.4), 0.9)), 1),
    ]
    assert len({name(task) for task in tasks}) == len(tasks)
    assert name(pickle.loads(pickle.dumps(tasks[4]))) == name(tasks[4])


def test_the_demand_of_a_case() -> None:
    assert WEEK_CASE.world(3, 300.0).demands[""] == seeded(3)
    trace = Case("x", Bursts("x", (0.5, 1.5), 0.9)).world(1, 300.0).demands[""]
    assert (trace.name, trace.prompt_share) == ("x", 0.9)
    assert list(REGIONS_CASE.world(3, 300.0).demands) == ["eu", "us"]
