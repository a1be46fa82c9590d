"""The settings of a request are those of the configuration; a class may have its own timeouts."""

import pytest
from msgspec.structs import replace

from router.config.model import (
    BatchClass,
    Classes,
    ClassSettings,
    ClassTimeouts,
    Config,
    Limits,
    Priority,
    Queue,
    Retry,
    Timeouts,
    Usage,
)
from router.dispatch.rules import Rules, Times, pool_timeouts

USUAL = Timeouts(
    commit_after_s=1.0,
    connect_s=2.0,
    first_token_s=3.0,
    token_gap_s=4.0,
    total_s=5.0,
    whole_s=6.0,
    write_stall_s=7.0,
)
OWN = ("connect_s", "first_token_s", "token_gap_s", "total_s", "whole_s")


def values(times: Times) -> dict[str, float]:
    return {name: getattr(times, name) for name in ("commit_after_s", *OWN)}


def test_the_usual_timeouts() -> None:
    times = Times(USUAL, USUAL.connect_s)
    assert values(times) == {name: getattr(USUAL, name) for name in ("commit_after_s", *OWN)}
    assert not times.is_own


@pytest.mark.parametrize("name", OWN)
def test_a_class_replaces_one_timeout_and_keeps_the_others(name: str) -> None:
    times = Times(USUAL, USUAL.connect_s, ClassTimeouts(**{name: 0.5}))
    assert values(times) == {**values(Times(USUAL, USUAL.connect_s)), name: 0.5}
    assert times.is_own is (name == "connect_s")


def test_zero_is_a_setting_of_a_class_and_not_the_absence_of_one() -> None:
    assert Times(USUAL, 2.0, ClassTimeouts(total_s=0.0)).total_s == 0.0


@pytest.mark.parametrize(
    ("own_s", "pool_s", "checks"),
    [(None, 2.0, (False, False)), (0.5, 2.0, (False, True)), (9.0, 9.0, (True, False))],
)
def test_the_pools_have_the_longest_connect_timeout_and_attempts_check_shorter_ones(
    own_s: float | None, pool_s: float, checks: tuple[bool, bool]
) -> None:
    own = BatchClass(timeouts=ClassTimeouts(connect_s=own_s, total_s=7.0))
    config = Config(timeouts=USUAL, classes=Classes(batch=own))
    assert pool_timeouts(config) == replace(USUAL, connect_s=pool_s)
    rules = Rules(config)
    assert (rules.times_of("").is_own, rules.times_of("batch").is_own) == checks


def test_classes_are_found_by_name_and_a_request_without_one_is_normal() -> None:
    classes = Classes(
        batch=BatchClass(timeouts=ClassTimeouts(total_s=9.0)),
        normal=ClassSettings(timeouts=ClassTimeouts(total_s=8.0)),
    )
    rules = Rules(Config(timeouts=USUAL, classes=classes))
    assert rules.times_of("batch").total_s == 9.0
    assert rules.times_of("normal").total_s == 8.0
    assert rules.times_of("") is rules.times_of("normal")
    assert rules.times_of("high") is rules.times
    assert rules.times.total_s == 5.0


def test_without_classes_every_request_has_the_usual_timeouts() -> None:
    rules = Rules(Config(timeouts=USUAL))
    for name in ("", "normal", "batch"):
        assert rules.times_of(name) is rules.times


def test_the_values_are_those_of_the_configuration() -> None:
    rules = Rules(
        Config(
            timeouts=USUAL,
            limits=Limits(response_hold=1234, retry_body=2345),
            retry=Retry(attempts=7, backoff_s=0.125, backoff_max_s=0.75),
            usage=Usage(inject=not Usage().inject),
            debug_headers=not Config().debug_headers,
            priority=Priority(steps=not Priority().steps),
            queue=Queue(batch_becomes_normal_after_s=50.0),
        )
    )
    assert rules.write_stall_s == 7.0
    assert (rules.response_hold, rules.retry_body) == (1234, 2345)
    assert (rules.attempts, rules.backoff_s, rules.backoff_max_s) == (7, 0.125, 0.75)
    assert rules.asks_for_usage is not Usage().inject
    assert rules.debug_headers is not Config().debug_headers
    assert rules.steps is not Priority().steps
    assert rules.level_s == 25.0  # two classes in 50 s


def test_a_queue_without_aging_has_the_longest_level() -> None:
    rules = Rules(Config(queue=Queue(batch_becomes_normal_after_s=0.0)))
    assert rules.level_s == 86_400.0
