"""The first minute after a start: urgent requests are protected without a flood of copies."""

import pytest

from router.config.model import Hedging
from tests.dispatch.hedging.hedged_fleet import HedgedFleet, Request
from tests.dispatch.hedging.test_hedger_at_large import share, within_budget
from tests.dispatch.hedging.world import played


def first_seconds(f: HedgedFleet, seconds: float) -> list[Request]:
    began = f.requests[0].began
    return [r for r in f.requests if r.urgency and r.began < began + seconds]


@pytest.mark.parametrize("seed", [1, 2, 3])
@played
def test_stragglers_of_the_first_seconds_are_hedged(seed: int) -> None:
    """Here first contents take about 0.12 s, half of the assumed time."""
    # Each request pays for its own copy; the initially empty budget is tested elsewhere.
    f = HedgedFleet(Hedging(budget=1.0), seed=seed, high=1.0)
    f.play(300, 30.0)
    early = first_seconds(f, 5.0)
    stuck = [r for r in early if r.was_slow]
    assert len(stuck) >= 3
    assert share(stuck) > 0.7
    assert share([r for r in early if not r.was_slow]) < 0.05


@pytest.mark.parametrize("seed", [1, 2, 3])
@played
def test_the_default_budget_pays_for_stragglers_of_the_first_minute(seed: int) -> None:
    f = HedgedFleet(seed=seed)
    f.play(1800, 30.0)
    stuck = [r for r in first_seconds(f, 60.0) if r.was_slow]
    assert share(stuck) > 0.8
    assert within_budget(f)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("budget", "is_quiet", "early", "later"),
    [(0.05, False, 0.1, 0.06), (1.0, False, 0.1, 0.06), (0.05, True, 0.3, 0.03)],
)
@played
def test_a_slow_fleet_is_not_flooded(
    seed: int, budget: float, is_quiet: bool, early: float, later: float
) -> None:
    """First contents take 5 s from the beginning, twenty times the assumption; none straggles.

    Almost nothing is hedged, even if the budget would pay for everything, or copies are free.
    """
    f = HedgedFleet(Hedging(budget=budget), seed=seed, high=1.0, stragglers=0.0, is_quiet=is_quiet)
    f.slowness = lambda now: 40.0
    requests = f.play(300, 1.0)
    times = sorted(r.ttft_s for r in requests)
    assert times[len(times) // 10] > 3.0
    assert share(requests[:50]) <= early
    assert share(requests[50:]) < later


@played
def test_a_frozen_replica_is_noticed_in_the_first_seconds() -> None:
    f = HedgedFleet(Hedging(budget=1.0), stragglers=0.0, high=1.0)
    f.freeze(f.table.fleet.replicas["r3"])
    f.play(300, 30.0)
    stuck = [r for r in f.requests if r.state.attempts[0].at.id == "r3"]
    assert stuck
    assert all(r.was_hedged for r in stuck)
    assert max(r.ttft_s for r in stuck) < 2.0
