"""Busy replicas are paused as long as they request, or for a time that doubles."""

from random import Random

from hypothesis import given, strategies as st

from router.config.model import Health as Rules
from router.fleet.health import PAUSE_MAX_S, PAUSE_S, Health
from router.fleet.table.outcomes import LARGE
from tests.fleet.helpers import Table


class Middle(Random):
    """A random generator that always returns the middle of the range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def refuse(health: Health, now: float, told_s: float | None = None) -> bool:
    return health.refused(now, Middle(), told_s)


def test_it_is_spared_as_long_as_it_asks() -> None:
    health = Health(Rules())
    assert refuse(health, 1.0, 7.0)
    assert health.is_busy(7.9)
    assert not health.is_busy(8.0)
    assert health.breaker(2.0) == "closed"
    assert health.failures == 0


def test_a_shorter_retry_after_does_not_shorten_a_longer_one() -> None:
    health = Health(Rules())
    refuse(health, 0.0, 30.0)
    assert not refuse(health, 1.0, 2.0)
    assert health.is_busy(29.9)
    assert not refuse(health, 2.0, 40.0)  # the pause continues
    assert health.is_busy(41.9)


def test_without_retry_after_the_pause_doubles_up_to_a_maximum() -> None:
    health = Health(Rules())
    now, pauses = 1.0, []
    for _ in range(8):
        assert refuse(health, now)
        pauses.append(round(health.busy_until - now, 6))
        now = health.busy_until
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


def test_a_burst_of_refusals_is_one_pause() -> None:
    health = Health(Rules())
    assert refuse(health, 1.0)
    until = health.busy_until
    for _ in range(100):
        assert not refuse(health, 1.05)
    assert (health.busy_until, health.refusals) == (until, 1)


def test_what_it_takes_ends_the_doubling_what_it_took_before_does_not() -> None:
    health = Health(Rules())
    for now in (1.0, 2.0, 3.0):
        refuse(health, now)
    health.showed_content(4.0, 2.5)
    assert health.refusals == 3
    health.succeeded(4.0, content=False, dispatched=3.0)
    assert health.refusals == 0
    refuse(health, 5.0)
    assert round(health.busy_until - 5.0, 6) == PAUSE_S


@given(st.integers(0, 2**32), st.integers(0, 2000))
def test_the_jitter_has_bounds(seed: int, refusals: int) -> None:
    health = Health(Rules())
    health.refusals = refusals
    health.refused(100.0, Random(seed), None)
    pause = health.busy_until - 100.0
    assert 0.8 * PAUSE_S - 1e-9 <= pause <= 1.2 * PAUSE_MAX_S + 1e-9


# -- in the fleet -----------------------------------------------------------------------------


def test_a_busy_replica_is_used_only_if_there_is_no_other(table: Table) -> None:
    fleet = table.fleet
    one, two = table.add("a"), table.add("b")
    alone = table.add("c", ("rare",))
    fleet.outcomes.busy(one, b"5", fleet.clock())
    assert table.ids("m") == ["b"]
    assert table.ids("m", "b") == ["a"]
    fleet.outcomes.busy(two, b"5", fleet.clock())
    assert table.ids("m") == ["a", "b"]  # all replicas are busy: none is excluded
    fleet.outcomes.busy(alone, b"5", fleet.clock())
    assert table.ids("rare") == ["c"]
    assert table.events == []


def test_a_busy_one_is_rather_asked_than_a_suspect(table: Table) -> None:
    fleet = table.fleet
    one, two = table.add("a"), table.add("b")
    now = fleet.clock()
    fleet.outcomes.overdue(one, now - table.rules.suspect_min_s, now)
    fleet.outcomes.busy(two, b"5", fleet.clock())
    assert table.ids("m") == ["b"]


def test_the_pause_ends_by_itself(table: Table) -> None:
    fleet = table.fleet
    one = table.add("a")
    table.add("b")
    now = fleet.clock()
    fleet.outcomes.busy(one, None, now)
    assert now < fleet.deadline <= one.health.busy_until
    until = one.health.busy_until
    table.clock = lambda: until
    fleet.on_deadline(until)
    assert table.ids("m") == ["a", "b"]


def test_a_large_fleet_passes_over_all_of_them_at_the_next_tick(table: Table) -> None:
    fleet = table.fleet
    many = [table.add(f"r{number}") for number in range(LARGE + 2)]
    now = fleet.clock()
    for replica in many[:-1]:
        fleet.outcomes.busy(replica, b"5", now)
    assert fleet.deadline <= now
    fleet.on_deadline(now)
    assert table.ids("m") == [many[-1].id]
    assert fleet.deadline > now


def test_dates_and_nonsense(table: Table) -> None:
    fleet = table.fleet
    one, two, three = (table.add(name) for name in "abc")
    fleet.outcomes.busy(one, b"Fri, 31 Dec 2999 23:59:59 GMT", 100.0)
    assert one.health.busy_until == 160.0  # at most one minute is accepted
    fleet.outcomes.busy(two, b"soon", 100.0)
    assert 100.0 < two.health.busy_until <= 100.0 + 1.2 * PAUSE_S
    fleet.outcomes.busy(three, b"Sun, 06 Nov 1994 08:49:37 GMT", 100.0)
    assert not three.health.is_busy(100.0)
