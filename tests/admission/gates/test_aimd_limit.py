"""The learned limit: when it is used up, how long the best time counts, rounds of decreases."""

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
        (0.1, 0.5, False),  # five times as long, but less than half a second longer
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
    """Slower answers come in between; each is not late compared with the previous answer."""
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


def test_a_limit_that_is_used_up_doubles_a_round_until_the_first_cut() -> None:
    limit = AimdLimit()
    first = limit.allowed()
    for _ in range(first):
        limit.answered(0.0, 1.0, 1.0, 10**6)
    assert limit.allowed() == 2 * first


def test_a_limit_that_is_used_up_grows_by_one_a_round_after_it() -> None:
    limit = AimdLimit()
    limit.failed(-2.0, -1.0)
    before = limit.allowed()
    now = 0.0
    for _ in range(before):
        limit.answered(now, now + 1.0, 1.0, before)
    assert limit.allowed() in (before, before + 1)
    for _ in range(10_000):
        now += 0.1
        limit.answered(now, now + 1.0, 1.0, 10**6)
    assert limit.limit <= MOST


def test_a_limit_that_is_not_used_up_does_not_grow() -> None:
    limit = AimdLimit()
    for number in range(1000):
        limit.answered(float(number), number + 1.0, 1.0, 2)
    assert limit.limit == AimdLimit().limit


def test_late_answers_cut_it_once_a_round_and_never_to_nothing() -> None:
    limit = AimdLimit()
    limit.answered(0.0, 1.0, 1.0, 0)
    for _ in range(10):  # answers to requests sent before the first decrease do not count
        limit.answered(0.5, 20.0, 1.0, 16)
    assert limit.limit == pytest.approx(0.9 * FIRST)
    for number in range(100):
        limit.failed(21.0 + number, 21.5 + number)
    assert limit.allowed() == LEAST


def test_a_moment_more_is_not_late() -> None:
    limit = AimdLimit()
    for number in range(1000):
        limit.answered(float(number), number + 0.001 * (1 + number % 100), 1.0, 2)
    assert limit.allowed() >= FIRST


def test_the_pace_is_per_unit_of_work_and_the_best_is_forgotten() -> None:
    limit = AimdLimit()
    limit.answered(0.0, 1.0, 100.0, 0)
    limit.answered(1.0, 11.0, 1000.0, 0)  # ten times as long, with ten times the work
    assert limit.limit == AimdLimit().limit
    limit.answered(200.0, 201.0, 10.0, 0)  # two windows later, the tenfold time is the usual time
    limit.answered(300.0, 301.0, 10.0, 0)
    limit.answered(400.0, 401.0, 10.0, 0)
    assert limit.limit > 14.0


@pytest.mark.parametrize("work", [0.0, -5.0, 1e300])
@pytest.mark.parametrize("took_s", [0.0, -1.0, 1e9])
def test_odd_answers_break_nothing(work: float, took_s: float) -> None:
    limit = AimdLimit()
    for _ in range(50):
        limit.answered(10.0, 10.0 + took_s, work, 10**9)
    assert LEAST <= limit.allowed() <= MOST
