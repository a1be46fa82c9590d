"""The search for the best parameter of each contestant."""

import pytest

from bench.plan import contestants
from bench.plan.contestants import (
    EQUAL,
    EVEN,
    HPA,
    NAMES,
    PLAN,
    REACTIVE,
    SAGESERVE,
    STATIC,
    TARGET,
    Best,
    bisected,
    cheapest,
    contests,
)
from bench.plan.fleet import DAY, STEP_S, THROUGHPUT, WEEK, Demand, Outcome, World, seeded
from router.lab.plan.forecasts.method import Forecast

KNOBS = (1.0, 0.9, 0.8, 0.7, 0.6)


def outcome(knob: float) -> Outcome:
    """A smaller knob costs more and attains more."""
    return Outcome(100.0 / knob, 1.0 - knob / 50.0, 10.0 / knob)


def test_the_cheapest_knob_that_attains_counts() -> None:
    by_knob = {0.9: None, 0.8: Outcome(80.0, 0.99, 6.0), 0.7: Outcome(70.0, 1.0, 7.0)}
    assert cheapest("x", (0.9, 0.8, 0.7), by_knob.get) == Best("x", 0.8, by_knob[0.8])
    assert cheapest("x", (0.9,), by_knob.get) == Best("x", None, None)


@pytest.mark.parametrize("best", KNOBS)
def test_the_bisection_finds_each_knob(best: float) -> None:
    asked: list[float] = []

    def play(knob: float) -> Outcome | None:
        asked.append(knob)
        return outcome(knob)

    found = bisected("x", KNOBS, play, outcome(best).attainment)
    assert found == Best("x", best, outcome(best))
    assert len(set(asked)) <= 3


def short_world(lead_s: float = 300.0) -> World:
    """One judged day, between weekdays."""
    whole = seeded(1)
    return World("x", {"": Demand("x", whole.tokens[: WEEK + DAY], whole.prompt_share)}, lead_s)


def perfect(world: World, share: float = 1.0) -> dict[str, dict[int, Forecast]]:
    """Forecasts of this share of the demand."""
    tokens = [share * value for value in world.demands[""].tokens]
    return {
        "": {
            step: Forecast("known", (), ahead, ahead, ahead)
            for step in range(WEEK, len(tokens))
            for ahead in [(*tokens[step : step + 7], *[tokens[-1]] * 7)[:7]]
        }
    }


def test_a_perfect_forecast_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "UTILISATIONS", tuple(n / 20.0 for n in range(20, 4, -1)))
    world = short_world()
    found = {one.contestant: one for one in contests(world, perfect(world))}
    assert tuple(found) == NAMES
    hours = {name: one.outcome.gpu_hours for name, one in found.items() if one.outcome}
    busy = sum(world.demands[""].tokens[WEEK:]) / THROUGHPUT / 3600.0
    assert busy < hours[PLAN] < 1.2 * busy
    assert hours[PLAN] < min(hours[HPA], hours[REACTIVE]) < hours[STATIC]
    for name in (STATIC, HPA, REACTIVE, PLAN):
        one = found[name].outcome
        assert one is not None and one.attainment >= TARGET
    equal, published = found[EQUAL].outcome, found[SAGESERVE].outcome
    assert equal is not None and published is not None
    assert equal.attainment >= published.attainment - EVEN
    assert found[SAGESERVE].knob == 0.5
    assert STEP_S == 300.0
