"""Replicas that generate nothing: overdue tokens, lost races, suspicion, ejection and trial."""

from collections.abc import Callable
from random import Random

import pytest

from router.config.model import Health as Rules
from router.fleet.health import COLDEST, LAG_S, RACES, Health
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.fleet.table.table import WARMING_S
from router.wire.sweep import NEVER
from tests.fleet.helpers import Table

RULES = Rules(rise=1, fall=3, eject_after=5, eject_base_s=10.0, eject_max_s=300.0)
Step = Callable[[Health], object]


def overdue(now: float, may_eject: bool = True) -> Step:
    return lambda health: health.overdue(now, Random(0), may_eject)


def failed(now: float, was_overdue: bool = False, sent: float | None = None) -> Step:
    return lambda health: health.failed(
        now, Random(0), True, was_overdue=was_overdue, dispatched=sent
    )


def lost(now: float, races: int = 1, may_eject: bool = True) -> Step:
    return lambda health: [health.outrun(now, Random(0), may_eject) for _ in range(races)]


def content(now: float, sent: float | None = None) -> Step:
    return lambda health: health.showed_content(now, sent)


def answered(now: float, sent: float | None = None, has_content: bool = True) -> Step:
    return lambda health: health.succeeded(now, content=has_content, dispatched=sent)


def probed(now: float) -> Step:
    return lambda health: [health.probed(True, now) for _ in range(20)]


def reopened(health: Health) -> None:
    """The ejection ends."""
    assert health.reopened(health.ejected_until)


HANGS = [overdue(0.0), overdue(0.0)]
FAILS = [failed(0.0)] * RULES.eject_after
# Each case: what happens, and the state of the breaker at a time after that.
CASES: dict[str, tuple[list[Step], float, str]] = {
    # An overdue first token.
    "one overdue token": ([overdue(1.0)], 1.0, "suspect"),
    "a second one": ([overdue(1.0), overdue(2.0)], 2.0, "open"),
    "the failure of the overdue attempt": ([overdue(1.0), failed(2.0, True)], 2.0, "open"),
    "the failure of another attempt": ([overdue(1.0), failed(2.0)], 2.0, "suspect"),
    "content": ([overdue(1.0), content(2.0)], 2.0, "closed"),
    "content in between": ([overdue(1.0), content(2.0), overdue(3.0)], 3.0, "suspect"),
    "content before the failure": ([overdue(1.0), content(2.0), failed(3.0, True)], 3.0, "closed"),
    "an answer": ([overdue(1.0), answered(2.0)], 2.0, "closed"),
    "an answer without content": ([overdue(1.0), answered(2.0, None, False)], 2.0, "suspect"),
    "good probes": ([overdue(1.0), probed(2.0)], 2.0, "suspect"),
    "good probes in between": ([overdue(1.0), probed(2.0), overdue(3.0)], 3.0, "open"),
    "a suspicion before its end": ([overdue(1.0)], 10.9, "suspect"),
    "a suspicion after its end": ([overdue(1.0)], 11.1, "closed"),
    "an overdue token after that": ([overdue(1.0), overdue(12.0)], 12.0, "open"),
    "the last replica": ([overdue(1.0), overdue(2.0, False)], 2.0, "suspect"),
    # Lost races. Attempts that were in progress when the suspicion began lose as well.
    "lost races, one less": ([lost(0.0, RACES - 1)], 0.0, "closed"),
    "lost races": ([lost(0.0, RACES)], 0.0, "suspect"),
    "content between races": ([lost(0.0, 2), content(0.0), lost(0.0, 2)], 0.0, "closed"),
    "races that are lost meanwhile": ([lost(0.0, RACES), lost(1.0, 50)], 1.0, "suspect"),
    "they lengthen nothing": ([lost(0.0, RACES), lost(1.0, 50)], 10.0, "closed"),
    "a lost race after the suspicion": ([lost(0.0, RACES), lost(10.0)], 10.0, "open"),
    "of the last replica": ([lost(0.0, RACES), lost(10.0, 1, False)], 19.9, "suspect"),
    "an overdue token after races": ([lost(0.0, RACES), overdue(1.0)], 1.0, "open"),
    # The trial after an ejection because nothing was generated.
    "probes before the trial": ([*HANGS, probed(1.0)], 1.0, "open"),
    "probes in the trial": ([*HANGS, reopened, probed(30.0)], 30.0, "half_open"),
    "content of the trial": ([*HANGS, reopened, content(30.0, 20.0)], 30.0, "closed"),
    "content of an older attempt": ([*HANGS, reopened, content(30.0, 4.0)], 30.0, "half_open"),
    "an older failure": ([*HANGS, reopened, failed(30.0, False, 4.0)], 30.0, "half_open"),
    "an older answer": ([*HANGS, reopened, answered(30.0, 4.0)], 30.0, "half_open"),
    "a trial without content": ([*HANGS, reopened, answered(30.0, 20.0, False)], 30.0, "half_open"),
    "an answer to the trial": ([*HANGS, reopened, answered(30.0, 20.0)], 30.0, "closed"),
    "an overdue trial, for twice the time": ([*HANGS, reopened, overdue(20.0)], 35.0, "open"),
    "a failed trial, for twice the time": ([*HANGS, reopened, failed(20.0)], 35.0, "open"),
    "a lost trial": ([lost(0.0, RACES), lost(10.0), reopened, lost(30.0)], 45.0, "open"),
    # The trial after failures.
    "an answer without content after failures": (
        [*FAILS, reopened, answered(20.0, None, False)],
        20.0,
        "closed",
    ),
    "a trial that loses by chance": ([*FAILS, reopened, lost(20.0, RACES - 1)], 20.0, "half_open"),
    "a trial that loses again": ([*FAILS, reopened, lost(20.0, RACES)], 20.0, "open"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_state_after(case: str) -> None:
    steps, now, expected = CASES[case]
    health = Health(RULES)
    for step in steps:
        step(health)
    assert health.breaker(now) == expected
    if expected == "open":
        assert health.zombie


@pytest.mark.parametrize("step", [overdue(1.0), failed(1.0, True), lost(1.0)])
def test_nothing_lengthens_an_ejection(step: Step) -> None:
    health = Health(RULES)
    for each in HANGS:
        each(health)
    until = health.ejected_until
    for _ in range(10):
        assert step(health) in (False, [False])
    assert (health.ejected_until, health.ejections) == (until, 1)


# -- in the fleet -----------------------------------------------------------------------------


def lose_in(fleet: Fleet, replica: Replica) -> bool:
    """The replica loses a race with an attempt that was just sent."""
    now = fleet.clock()
    return fleet.outcomes.outrun(replica, now, now)


def test_a_loser_is_passed_over_until_it_shows_content(table: Table) -> None:
    fleet = table.fleet
    one, two = table.add("a"), table.add("b")
    for _ in range(RACES):
        assert table.ids("m") == ["a", "b"]
        lose_in(fleet, one)
    assert table.ids("m") == ["b"]
    assert table.events == [("suspect", "a")]
    lose_in(fleet, one)
    assert table.events == [("suspect", "a")]  # reported once
    assert table.ids("m", "b") == ["a"]  # a suspect replica is better than no replica
    fleet.outcomes.showed_content(one, fleet.clock(), fleet.clock(), 0.1, 1)
    assert table.ids("m") == ["a", "b"]
    lose_in(fleet, two)
    fleet.outcomes.showed_content(two, fleet.clock(), fleet.clock(), 0.1, 1)
    assert two.health.races_lost == 0


def test_a_busy_loser_gets_fewer_requests_for_a_while(table: Table) -> None:
    fleet = table.fleet
    one, two = table.add("a"), table.add("b")
    now = fleet.clock()
    fleet.outcomes.showed_content(one, now, now - 1.0, 0.1, 1)
    for _ in range(RACES):
        fleet.outcomes.outrun(one, now - 1.0, now)
    assert (one.health.races_lost, table.ids("m"), table.events) == (0, ["a", "b"], [])
    assert (one.weight, two.weight) == (COLDEST, 1.0)
    assert fleet.deadline <= now + WARMING_S
    one.health.lags(now - LAG_S)  # as if the race had been lost then
    fleet.on_deadline(fleet.clock())
    assert one.weight == 1.0
    assert fleet.deadline == NEVER


def test_the_only_replica_of_a_model_is_not_passed_over(table: Table) -> None:
    fleet = table.fleet
    alone = table.add("a", ("rare",))
    table.add("b", ("m",))
    for _ in range(RACES):
        lose_in(fleet, alone)
    assert alone.health.breaker(fleet.clock()) == "suspect"
    assert table.ids("rare") == ["a"]


def test_one_that_left_the_fleet_is_not_judged(table: Table) -> None:
    gone = table.add("a")
    table.add("b")
    table.fleet.remove("a")
    for _ in range(RACES):
        table.fleet.outcomes.outrun(gone, 0.0, 0.0)
    table.fleet.outcomes.busy(gone, b"10", 0.0)
    assert gone.weight == 1.0
    assert table.events == []
