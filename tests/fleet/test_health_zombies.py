"""Replicas that accept requests and answer probes but generate nothing.

They become suspect, are ejected, and get a trial.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.model import Health as Rules
from router.fleet.health import Health
from tests.examples import examples

RULES = Rules(rise=1, fall=3, eject_after=5, eject_base_s=10.0, eject_max_s=300.0)


def make() -> Health:
    return Health(RULES)


def overdue(health: Health, now: float = 0.0, may_eject: bool = True) -> bool:
    return health.overdue(now, Random(0), may_eject)


def ejected_zombie(now: float = 0.0) -> Health:
    health = make()
    assert not overdue(health, now)
    assert overdue(health, now)
    return health


def tried(now: float = 0.0) -> Health:
    """A hanging replica whose ejection has ended."""
    health = ejected_zombie(now)
    assert health.reopened(health.ejected_until)
    return health


# -- suspicion --------------------------------------------------------------------------------


def test_the_first_overdue_token_makes_it_suspect_at_once() -> None:
    health = make()
    assert not health.is_suspect(0.0)
    assert not overdue(health, 1.0)
    assert health.is_suspect(1.0)
    assert not health.is_ejected(1.0)


def test_the_second_ejects_it() -> None:
    health = make()
    overdue(health, 1.0)
    assert overdue(health, 2.0)
    assert health.is_ejected(2.0)
    assert health.zombie


def test_the_same_attempt_failing_ejects_it() -> None:
    health = make()
    overdue(health, 1.0)
    assert health.failed(2.0, Random(0), True, was_overdue=True)
    assert health.is_ejected(2.0)
    assert health.zombie


def test_another_attempt_failing_is_one_failure_and_no_more() -> None:
    health = make()
    overdue(health, 1.0)
    assert not health.failed(2.0, Random(0), True)
    assert not health.is_ejected(2.0)
    assert health.is_suspect(2.0)


def test_content_clears_it() -> None:
    health = make()
    overdue(health, 1.0)
    assert not health.showed_content(2.0)
    assert not health.is_suspect(2.0)
    assert not overdue(health, 3.0)  # the count of overdue requests starts again
    health.showed_content(4.0)
    assert not health.failed(5.0, Random(0), True, was_overdue=True)


def test_a_whole_answer_with_content_clears_it_one_without_does_not() -> None:
    health = make()
    overdue(health, 1.0)
    health.succeeded(2.0, content=False)
    assert health.is_suspect(2.0)
    health.succeeded(3.0)
    assert not health.is_suspect(3.0)


def test_its_probe_does_not_clear_it() -> None:
    health = make()
    overdue(health, 1.0)
    for _ in range(20):
        health.probed(True, 2.0)
    assert health.is_suspect(2.0)
    assert overdue(health, 3.0)


def test_suspicion_wears_off_but_is_not_forgotten() -> None:
    """The client left and the replica got no other request: one request must try the replica."""
    health = make()
    overdue(health, 1.0)
    assert health.is_suspect(10.9)
    assert not health.is_suspect(11.1)
    assert overdue(health, 12.0)


def test_the_last_one_stays_however_suspect() -> None:
    health = make()
    for now in range(10):
        assert not overdue(health, float(now), may_eject=False)
    assert health.is_suspect(9.0)
    assert overdue(health, 10.0)


def test_overdue_tokens_during_an_ejection_do_not_lengthen_it() -> None:
    health = ejected_zombie()
    until = health.ejected_until
    for _ in range(10):
        assert not overdue(health, 1.0)
        assert not health.failed(1.0, Random(0), True, was_overdue=True)
    assert (health.ejected_until, health.ejections) == (until, 1)


# -- the trial after an ejection --------------------------------------------------------------


def test_its_probe_does_not_revive_it() -> None:
    health = ejected_zombie()
    for _ in range(20):
        health.probed(True, 1.0)
    assert health.is_ejected(1.0)
    health.reopened(health.ejected_until)
    for _ in range(20):
        health.probed(True, 30.0)
    assert health.half_open


def test_a_trial_that_shows_content_revives_it() -> None:
    health = tried()
    assert health.half_open
    now = health.ended + 1
    assert health.showed_content(now, dispatched=health.ended)
    assert not health.half_open
    assert not health.zombie
    assert not health.succeeded(now + 1)


def test_a_trial_that_shows_none_does_not() -> None:
    health = tried()
    assert not health.succeeded(20.0, content=False)
    assert health.half_open
    assert health.succeeded(21.0, content=True)
    assert not health.half_open


def test_content_of_before_the_trial_does_not() -> None:
    """A stream opened before the replica hung does not show that it accepts new streams."""
    health = ejected_zombie(5.0)
    assert not health.showed_content(6.0)
    assert health.is_ejected(6.0)
    health.reopened(health.ejected_until)
    assert not health.showed_content(health.ended + 1, dispatched=4.0)
    assert not health.succeeded(health.ended + 1, dispatched=4.0)
    assert health.half_open
    assert health.zombie


@pytest.mark.parametrize("how", ["overdue", "failed"])
def test_one_bad_trial_ejects_it_again_for_longer(how: str) -> None:
    health = tried()
    now = health.ended + 1
    if how == "overdue":
        assert overdue(health, now)
    else:
        assert health.failed(now, Random(0), True)
    assert health.is_ejected(now + 15)  # twice ten seconds, less a fifth
    assert health.zombie
    assert not health.half_open


def test_a_trial_after_another_ejection_needs_no_content() -> None:
    health = make()
    for _ in range(5):
        health.failed(0.0, Random(0), True)
    health.reopened(health.ejected_until)
    assert health.succeeded(20.0, content=False)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["overdue", "spared", "failed", "late", "content", "plain", "probe", "bad", "wait"]
        ),
        st.floats(0, 60),
    ),
    max_size=60,
)


@examples(300)
@given(STEPS, st.integers(0, 1000))
def test_invariants_hold_under_random_operations(steps: list[tuple[str, float]], seed: int) -> None:
    health = make()
    rng = Random(seed)
    now = 1.0
    for what, amount in steps:
        was_out = bool(health.ejected_until) or health.half_open
        was_zombie = health.zombie and was_out
        if what == "overdue":
            health.overdue(now, rng, True)
        elif what == "spared":
            assert not health.overdue(now, rng, False)
        elif what == "failed":
            health.failed(now, rng, True)
        elif what == "late":
            health.failed(now, rng, True, was_overdue=True)
        elif what == "content":
            health.showed_content(now, now)
        elif what == "plain":
            health.succeeded(now, content=False)
        elif what == "wait":
            now += amount
            health.reopened(now)
        else:
            health.probed(what == "probe", now)
        is_out = bool(health.ejected_until) or health.half_open
        if was_zombie and not is_out:
            assert what == "content"
        assert not (health.half_open and health.is_ejected(now))
        assert not (health.is_ejected(now) and health.ejected_until - now > 360)
        assert 0.1 <= health.factor(now) <= 1.0
