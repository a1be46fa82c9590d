"""The controller that follows the router's plan."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.plan.contestants import forecast_week, plan_controller, types_of
from bench.plan.fleet import (
    DAY,
    STEP_S,
    THROUGHPUT,
    WEEK,
    Counts,
    Demand,
    PoolKey,
    Seen,
    World,
    seeded,
)
from bench.plan.found import TWO_KINDS
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
