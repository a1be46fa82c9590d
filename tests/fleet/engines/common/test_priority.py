"""Priorities as virtual deadlines: the level, the unbounded scale, and the engine's number."""

import pytest
from hypothesis import given, strategies as st

from router.core.urgency import BATCH, CRITICAL, HIGH, LOW, NORMAL
from router.fleet.engines.common.priority import (
    CRITICAL_AHEAD_S,
    EPOCH,
    LEAST_LEVEL_S,
    MOST_LEVEL_S,
    SILENT,
    deadline_number,
    level_s,
    lower_first,
)

LEVEL_S = 300.0
URGENCIES = st.floats(0.0, 4.5, exclude_max=True)


@pytest.mark.parametrize(
    ("aging", "level"),
    [(0.0, MOST_LEVEL_S), (-1.0, MOST_LEVEL_S), (0.01, 100.0), (5.0, LEAST_LEVEL_S)],
)
def test_a_level_is_the_time_of_one_class_within_its_bounds(aging: float, level: float) -> None:
    assert level_s(aging) == pytest.approx(level)


def test_numbers_of_clients_have_classes_that_examples_expect() -> None:
    assert lower_first(0.0) == NORMAL
    assert lower_first(10.0) == LOW
    assert lower_first(-10.0) == HIGH
    assert lower_first(30.0) == pytest.approx(BATCH - 0.5)
    assert lower_first(-30.0) == pytest.approx(CRITICAL + 0.5)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_the_scale_has_no_ends_and_keeps_the_order(a: float, b: float) -> None:
    assert CRITICAL <= lower_first(a) <= BATCH
    assert lower_first(-a) == pytest.approx(2 * NORMAL - lower_first(a))
    if a < b:
        assert lower_first(a) <= lower_first(b)


def test_a_normal_request_is_due_when_it_arrives() -> None:
    assert deadline_number(NORMAL, EPOCH + 12.3, LEVEL_S) == 123
    assert deadline_number(NORMAL, EPOCH - 1.0, LEVEL_S) == -10


@pytest.mark.parametrize(
    ("urgency", "due_s"),
    [
        (BATCH, 2 * LEVEL_S),
        (LOW, LEVEL_S),
        (HIGH, -LEVEL_S),
        (0.5, -1.5 * LEVEL_S),  # the last number of class high
        (CRITICAL, -2 * LEVEL_S - CRITICAL_AHEAD_S),
        (0.25, -1.75 * LEVEL_S - CRITICAL_AHEAD_S),
    ],
)
def test_a_class_is_an_offset_of_its_deadline(urgency: float, due_s: float) -> None:
    assert deadline_number(urgency, EPOCH, LEVEL_S) == round(10 * due_s)


@given(URGENCIES, URGENCIES, st.floats(0.0, 1e5), st.floats(LEAST_LEVEL_S, MOST_LEVEL_S))
def test_of_two_requests_at_one_time_the_more_urgent_is_due_first(
    a: float, b: float, after_s: float, level: float
) -> None:
    arrived = EPOCH + after_s
    if a <= b:
        assert deadline_number(a, arrived, level) <= deadline_number(b, arrived, level)


@given(URGENCIES, st.floats(LEAST_LEVEL_S, MOST_LEVEL_S))
def test_every_request_is_overtaken_for_a_limited_time_only(urgency: float, level: float) -> None:
    """The most urgent request that arrives later has a later virtual deadline."""
    wait_s = (BATCH + 1) * level + CRITICAL_AHEAD_S + 1.0
    waiting = deadline_number(urgency, EPOCH, level)
    assert deadline_number(CRITICAL, EPOCH + wait_s, level) > waiting


def test_an_engine_without_priorities_gets_no_number() -> None:
    assert (SILENT.name, SILENT.paths, SILENT.header) == ("none", frozenset(), b"")
    with pytest.raises(NotImplementedError):
        SILENT.read(0.0)
    with pytest.raises(NotImplementedError):
        SILENT.write(2.0, EPOCH, LEVEL_S, False)
