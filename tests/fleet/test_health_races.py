"""Consecutive lost races without content: suspicion, and ejection after a failed trial."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from router.config.model import Health as Rules
from router.fleet.health import BREAKERS, COLDEST, LAG_S, RACES, Health
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.fleet.table.table import WARMING_S
from router.wire.sweep import NEVER
from tests.examples import examples
from tests.fleet.helpers import Table

RULES = Rules(rise=1, fall=3, eject_after=5, eject_base_s=10.0, eject_max_s=300.0)


def lose(health: Health, now: float, times: int = 1, may_eject: bool = True) -> list[bool]:
    return [health.outrun(now, Random(0), may_eject) for _ in range(times)]


def suspect(now: float = 0.0) -> Health:
    health = Health(RULES)
    lose(health, now, RACES)
    assert health.breaker(now) == "suspect"
    return health


def test_three_in_a_row_and_not_before() -> None:
    health = Health(RULES)
    assert lose(health, 0.0, RACES - 1) == [False] * (RACES - 1)
    assert health.breaker(0.0) == "closed"
    assert lose(health, 0.0) == [False]
    assert health.breaker(0.0) == "suspect"


def test_content_in_between_starts_the_count_anew() -> None:
    health = Health(RULES)
    for _ in range(10):
        lose(health, 0.0, RACES - 1)
        health.showed_content(0.0)
    assert health.breaker(0.0) == "closed"


def test_those_under_way_lose_as_well_and_eject_nothing() -> None:
    health = suspect()
    assert lose(health, 1.0, 50) == [False] * 50
    assert health.breaker(1.0) == "suspect"
    assert not health.is_suspect(10.0)  # further losses do not lengthen the suspicion either


def test_one_that_is_tried_again_for_nothing_is_ejected() -> None:
    health = suspect()
    assert lose(health, 10.0) == [True]
    assert (health.breaker(10.0), health.zombie) == ("open", True)
    assert lose(health, 10.0, 5) == [False] * 5  # the replica is already ejected
    now = health.ejected_until
    health.reopened(now)
    assert health.breaker(now) == "half_open"
    assert lose(health, now) == [True]  # the trial was lost too
    health.reopened(health.ejected_until)
    assert health.showed_content(health.ended, health.ended)
    assert health.breaker(health.ended) == "closed"


def test_one_that_may_not_be_ejected_stays_suspect() -> None:
    health = suspect()
    assert lose(health, 10.0, may_eject=False) == [False]
    assert health.is_suspect(19.9)


def test_a_trial_after_failures_may_lose_by_chance() -> None:
    health = Health(RULES)
    for _ in range(RULES.eject_after):
        health.failed(0.0, Random(0), True)
    now = health.ejected_until
    health.reopened(now)
    assert lose(health, now, RACES - 1) == [False] * (RACES - 1)
    assert health.breaker(now) == "half_open"
    assert lose(health, now) == [True]


def test_an_overdue_token_finds_the_suspicion() -> None:
    health = suspect()
    assert health.overdue(1.0, Random(0), True)


@examples(300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["lose", "spare", "content", "fail", "overdue", "wait", "busy", "ok"]),
            st.floats(0, 20),
        ),
        max_size=60,
    )
)
def test_random_races_have_one_result_and_leave_no_state_after_content(
    events: list[tuple[str, float]],
) -> None:
    health = Health(RULES)
    rng = Random(1)
    now = 1.0
    for what, amount in events:
        before = health.breaker(now)
        if what in ("lose", "spare"):
            ejected = health.outrun(now, rng, what == "lose")
            assert not (ejected and what == "spare")
            assert (health.breaker(now) == "open") == (ejected or before == "open")
        elif what == "content":
            health.showed_content(now, now)
            assert not health.is_suspect(now)
            assert health.races_lost == health.refusals == 0
        elif what == "fail":
            health.failed(now, rng, True)
        elif what == "overdue":
            health.overdue(now, rng, True)
        elif what == "busy":
            health.refused(now, rng, amount if amount > 10 else None)
            assert health.breaker(now) == before  # being busy does not change a replica's health
            assert health.busy_until <= now + 60
        elif what == "ok":
            health.succeeded(now)
        else:
            now += amount
            health.reopened(now)
        assert health.breaker(now) in BREAKERS


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
