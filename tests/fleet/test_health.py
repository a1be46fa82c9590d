"""One replica's health: probes and failures, with any clock and any random draws."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.config.model import Health as Rules
from router.core.errors import Reason, Source
from router.fleet.health import BLAMED, COLDEST, KNOWN_DEAD, Health
from tests.examples import examples

RULES = Rules(rise=2, fall=3, eject_after=5, eject_base_s=10.0, eject_max_s=300.0)


def make(**rules: Any) -> Health:
    return Health(Rules(**rules) if rules else RULES)


def fail(health: Health, now: float = 0.0, times: int = 1, rng: Random | None = None) -> bool:
    """Fail `times` times; return whether the last failure ejected it."""
    ejected = False
    for _ in range(times):
        ejected = health.failed(now, rng or Random(0), True)
    return ejected


class Middle(Random):
    """A random generator that always returns the middle of the range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


# -- probes -----------------------------------------------------------------------------------


def test_fall_and_rise_are_counted_in_a_row() -> None:
    health = make()
    results = [health.probed(good) for good in (False, False, True, False, False, False)]
    assert results == [False] * 5 + [True]
    assert not health.up
    assert health.known_dead
    assert [health.probed(good) for good in (True, False, True, True)] == [False] * 3 + [True]
    assert health.up
    assert not health.probed(True)


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_up_and_down_follow_the_last_streak(probes: list[bool], rise: int, fall: int) -> None:
    health = make(rise=rise, fall=fall)
    for index, good in enumerate(probes):
        was_up = health.up
        changed = health.probed(good)
        assert changed == (health.up != was_up)
        seen = probes[: index + 1]
        if not was_up and health.up:
            assert len(seen) >= rise
            assert all(seen[-rise:])
        if was_up and not health.up:
            assert len(seen) >= fall
            assert not any(seen[-fall:])


@pytest.mark.parametrize("interval_s", [0.5, 5.0, 60.0])
@pytest.mark.parametrize("rise", [1, 3])
def test_a_dead_replica_is_asked_less_and_less_often(interval_s: float, rise: int) -> None:
    """In a day it is asked about every 15 s, and after a repair it is up within 30 s."""
    health = make(rise=rise, fall=3)
    assert health.pause_s(interval_s) == interval_s
    pauses: list[float] = []
    passed_s = 0.0
    while passed_s < 86_400.0:
        health.probed(False)
        pauses.append(health.pause_s(interval_s))
        passed_s += pauses[-1]
    assert pauses == sorted(pauses)
    assert pauses[:3] == [min(interval_s, 1.0)] * 3  # a death is noticed as soon as before
    assert len(pauses) < 86_400.0 / min(15.0, 3 * interval_s) + 30
    back_s = pauses[-1] * 1.2 + Rules().timeout_s  # a probe that fails has just begun
    for _ in range(rise - 1):
        health.probed(True)
        back_s += health.pause_s(interval_s) * 1.2
    assert back_s < 30.0
    assert health.probed(True)
    assert health.pause_s(interval_s) == interval_s


# -- ejection ---------------------------------------------------------------------------------


def test_each_ejection_in_a_row_is_twice_as_long_up_to_the_longest() -> None:
    health = make()
    now = 0.0
    pauses = []
    fail(health, now, times=5, rng=Middle())
    for _ in range(8):
        pauses.append(health.ejected_until - now)
        now = health.ejected_until
        assert health.reopened(now)
        assert fail(health, now, rng=Middle())
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]


def test_hundreds_of_ejections_do_not_overflow() -> None:
    health = make()
    fail(health, times=5)
    for _ in range(5000):
        assert health.reopened(health.ejected_until)
        assert fail(health, 1.0)
    assert health.ejected_until - 1.0 <= 360


@given(st.integers(0, 2**32), st.integers(0, 6))
def test_the_jitter_has_bounds(seed: int, ejections: int) -> None:
    health = make()
    health.ejections = ejections
    fail(health, 100.0, times=5, rng=Random(seed))
    pause = min(10.0 * 2**ejections, 300.0)
    assert 0.8 * pause - 1e-9 <= health.ejected_until - 100.0 <= 1.2 * pause + 1e-9


def test_it_stays_when_it_may_not_be_ejected() -> None:
    health = make()
    for _ in range(50):
        assert not health.failed(0.0, Random(0), False)
    assert not health.is_ejected(0.0)
    assert fail(health)  # now a failure may eject the replica


def test_the_half_open_state_is_reported_once_and_in_time() -> None:
    health = make()
    assert not health.reopened(1e9)
    fail(health, times=5)
    until = health.ejected_until
    assert not health.reopened(until - 0.001)
    assert not health.half_open
    assert health.reopened(until)
    assert health.half_open
    assert not health.reopened(until + 1)


def test_one_failure_ends_a_trial_one_success_too() -> None:
    health = make()
    fail(health, times=5)
    health.reopened(health.ejected_until)
    assert fail(health, 50.0)
    assert health.is_ejected(50.0)
    assert not health.half_open
    health.reopened(health.ejected_until)
    assert health.succeeded()
    assert (health.half_open, health.failures, health.ejections) == (False, 0, 2)
    assert not health.succeeded()


def test_known_dead_after_a_few_failures() -> None:
    health = make()
    fail(health, times=KNOWN_DEAD - 1)
    assert not health.known_dead
    fail(health)
    assert health.known_dead
    health.succeeded()
    assert not health.known_dead


def test_who_is_blamed() -> None:
    assert Reason.REPLICA_BUSY not in BLAMED
    assert Reason.REPLICA_REFUSED not in BLAMED
    assert Reason.NO_FILES not in BLAMED
    assert Reason.NO_PORTS not in BLAMED
    assert Reason.CLIENT_GONE not in BLAMED
    assert Reason.TOTAL_TIMEOUT not in BLAMED
    assert all(reason.source is Source.REPLICA for reason in BLAMED)


EVENTS = ("fail", "late", "spare", "overdue", "lose", "content", "plain", "ok", "busy", "wait")


@examples(300)
@given(
    st.lists(
        st.tuples(st.sampled_from([*EVENTS, "good", "bad"]), st.floats(0, 60), st.booleans()),
        max_size=80,
    ),
    st.integers(0, 1000),
)
def test_invariants_hold_under_random_operations(
    events: list[tuple[str, float, bool]], seed: int
) -> None:
    health, rng, now = make(), Random(seed), 1.0
    for what, amount, may_eject in events:
        before = health.breaker(now)
        was_zombie = health.zombie and before in ("open", "half_open")
        ejected = False
        if what in ("fail", "late"):
            ejected = health.failed(now, rng, may_eject, was_overdue=what == "late")
        elif what == "overdue":
            ejected = health.overdue(now, rng, may_eject)
        elif what == "lose":
            ejected = health.outrun(now, rng, may_eject)
        elif what == "content":
            health.showed_content(now, now)
            assert health.races_lost == health.refusals == 0 and not health.is_suspect(now)
        elif what in ("plain", "ok"):
            health.succeeded(now, content=what == "ok", dispatched=now)
            assert health.failures == 0
        elif what == "busy":
            health.refused(now, rng, amount if amount > 10 else None)
            assert health.breaker(now) == before, "a busy replica is not unhealthy"
        elif what == "wait":
            now += 10 * amount
            health.reopened(now)
        else:
            health.probed(what == "good", now)
        after = health.breaker(now)
        if what != "wait":
            assert ejected == (after == "open" != before)
        assert not ejected or may_eject
        if was_zombie and after in ("closed", "suspect"):
            assert what in ("content", "ok")
        assert not (health.half_open and health.is_ejected(now))
        assert health.ejected_until - now <= 360 and health.busy_until - now <= 60
        assert health.failures >= 0 and COLDEST <= health.factor(now) <= 1.0
