"""Fleets of mixed GPU types.

A replica of a slow type is not treated as late; a replica that becomes slow is noticed.
"""

from typing import Any

import pytest

from router.config.model import Hedging
from router.fleet.replica import Replica
from tests.dispatch.hedging.hedged_fleet import HedgedFleet, Request
from tests.dispatch.hedging.test_hedger_at_large import share, within_budget
from tests.dispatch.hedging.world import played

PER_S = 20.0
KIND = 3.0


def is_slow_kind(replica: Replica) -> bool:
    return int(replica.id[1:]) % 4 == 0


def mixed(rules: Hedging | None = None, **world: Any) -> HedgedFleet:
    """Every fourth replica is of a type that takes three times as long."""
    f = HedgedFleet(rules, **world)
    f.slowness_of = lambda replica, now: KIND if is_slow_kind(replica) else 1.0
    return f


def at_slow_kind(requests: list[Request]) -> list[Request]:
    return [r for r in requests if is_slow_kind(r.state.attempts[0].at)]


@pytest.mark.parametrize("seed", [1, 2, 3])
@played
def test_a_slow_kind_of_replica_is_not_hedged_more_than_others(seed: int) -> None:
    """The policy always hedges the latest requests: without factors, those of the slow type."""
    rules = Hedging(policy="quantile", budget=0.1)
    f = mixed(rules, seed=seed, stragglers=0.0, high=1.0)
    f.play(600, PER_S)
    requests = f.play(3000, PER_S)
    slow = at_slow_kind(requests)
    assert len(slow) > 300
    assert share(slow) < 1.5 * share(requests) + 0.02
    assert not any(what in ("suspect", "ejected") for what, _ in f.table.events)


@pytest.mark.parametrize("seed", [1, 2, 3])
@played
def test_stragglers_of_a_slow_kind_are_hedged(seed: int) -> None:
    f = mixed(seed=seed)
    f.play(1000, PER_S)
    high = [r for r in f.play(3000, PER_S) if r.urgency]
    for requests in (high, at_slow_kind(high)):
        assert share([r for r in requests if r.was_slow]) > 0.85
        assert share([r for r in requests if not r.was_slow]) < 0.04
    assert within_budget(f)


@pytest.mark.parametrize("number", [0, 1])
@played
def test_a_replica_that_becomes_slow_is_noticed(number: int) -> None:
    """For a slow and a fast type: requests at the slowed replica are hedged for minutes."""
    f = mixed(Hedging(budget=1.0), stragglers=0.0, high=1.0)
    f.play(2000, PER_S)
    since = f.requests[-1].began
    bad = f.table.fleet.replicas[f"r{number}"]
    f.slowness_of = lambda replica, now: (
        (KIND if is_slow_kind(replica) else 1.0) * (8.0 if replica is bad and now > since else 1.0)
    )
    requests = f.play(2000, PER_S)  # requests of a hundred seconds
    there = [r for r in requests if r.state.attempts[0].at is bad]
    elsewhere = [r for r in requests if r.state.attempts[0].at is not bad]
    assert len(there) >= 5
    assert share(there) > 0.9
    assert share(elsewhere) < 0.05


@played
def test_the_state_of_a_removed_replica_is_dropped() -> None:
    f = mixed()
    f.play(500, PER_S)
    known = f.hedger.times._speeds
    assert len(known) == 20
    gone = f.table.fleet.replicas["r4"]
    f.table.fleet.remove("r4")
    f.hedger.times.fleet_changed()
    assert len(known) == 19
    assert gone not in known
    f.hedger.times._speed(gone, True).shown(1.0, 1.0, 1.0)  # an attempt that was still running
    assert gone not in known
