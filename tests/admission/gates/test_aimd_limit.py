"""The learned limit: when it is used up, how long the best answer counts, rounds of decreases."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.admission.gates.aimd_limit import FIRST, LEAST, MOST, AimdLimit

MANY = 10**6  # other requests: the limit is used up


def test_a_new_limit_is_a_whole_number_of_requests() -> None:
    assert AimdLimit().allowed() == FIRST


def test_the_request_that_ended_counts_as_one_that_used_the_limit() -> None:
    limit = AimdLimit()
    limit.answered(0.0, 1.0, 1.0, int(FIRST) - 2)
    assert limit.limit == FIRST
    limit.answered(0.0, 1.0, 1.0, int(FIRST) - 1)
    assert limit.limit == FIRST + 1.0


def test_a_decrease_ends_the_slow_start() -> None:
    limit = AimdLimit()
    limit.failed(0.0, 1.0)
    cut = limit.limit
    assert cut == pytest.approx(0.9 * FIRST)
    limit.answered(2.0, 3.0, 1.0, MANY)
    assert limit.limit == pytest.approx(cut + 1.0 / cut)


def test_requests_sent_before_a_decrease_belong_to_its_round() -> None:
    limit = AimdLimit()
    limit.failed(0.0, 10.0)
    cut = limit.limit
    limit.failed(9.0, 11.0)
    limit.failed(10.0, 12.0)
    assert limit.limit == cut
    limit.failed(10.5, 13.0)
    assert limit.limit == pytest.approx(0.9 * cut)


def late(limit: AimdLimit, sent_at: float, took_s: float) -> bool:
    """Whether an answer of that time lowers the limit."""
    before = limit.limit
    limit.answered(sent_at, sent_at + took_s, 1.0, 0)
    return limit.limit < before


@pytest.mark.parametrize(
    ("usual_s", "took_s", "is_late"),
    [
        (1.0, 2.9, False),
        (1.0, 3.1, True),
        (0.1, 0.5, False),  # five times as long, but not by half a second
        (0.1, 0.7, True),
        (0.3, 0.85, False),
    ],
)
def test_late_is_several_times_and_half_a_second_longer(
    usual_s: float, took_s: float, is_late: bool
) -> None:
    limit = AimdLimit()
    assert not late(limit, 0.0, usual_s)
    assert late(limit, 10.0, took_s) == is_late


@pytest.mark.parametrize(("at", "is_late"), [(30.0, True), (70.0, True), (200.0, False)])
def test_the_best_answer_counts_for_one_to_two_windows(at: float, is_late: bool) -> None:
    """Other answers come in between, each of the slower pace and not late for the one before."""
    limit = AimdLimit()
    limit.answered(0.0, 1.0, 1.0, 0)
    for moment in (65.0, 130.0, 195.0):
        if moment < at:
            limit.answered(moment, moment + 2.5, 1.0, 0)
    assert late(limit, at, 4.0) == is_late


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["answered", "failed"]),
            st.floats(0.0, 100.0),
            st.floats(-1.0, 1e6),
            st.integers(0, 2000),
        ),
        max_size=60,
    )
)
def test_the_limit_stays_within_its_bounds(
    steps: list[tuple[str, float, float, int]],
) -> None:
    limit, now = AimdLimit(), 0.0
    for act, took_s, work, others in steps:
        now += took_s
        if act == "failed":
            limit.failed(now - took_s, now)
        else:
            limit.answered(now - took_s, now, work, others)
        assert LEAST <= limit.limit <= MOST
        assert limit.allowed() == int(limit.limit) < inf
