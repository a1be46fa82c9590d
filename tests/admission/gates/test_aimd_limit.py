"""The learned limit: when it is used up, how long the best time counts, rounds of decreases."""

from math import inf

import pytest
from hypothesis import given, strategies as st

from router.admission.gates.aimd_limit import FIRST, LEAST, MOST, AimdLimit


def test_the_request_that_ended_counts_as_one_that_used_the_limit() -> None:
    limit = AimdLimit()
    limit.answered(0.0, 1.0, 1.0, int(FIRST) - 2)
    assert limit.limit == FIRST
    limit.answered(0.0, 1.0, 1.0, int(FIRST) - 1)
    assert limit.limit == FIRST + 1.0


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


def test_a_limit_that_is_not_used_up_does_not_grow() -> None:
    limit = AimdLimit()
    for number in range(1000):
        limit.answered(float(number), number + 1.0, 1.0, 2)
    assert limit.limit == AimdLimit().limit


@pytest.mark.parametrize("work", [0.0, -5.0, 1e300])
@pytest.mark.parametrize("took_s", [0.0, -1.0, 1e9])
def test_odd_answers_break_nothing(work: float, took_s: float) -> None:
    limit = AimdLimit()
    for _ in range(50):
        limit.answered(10.0, 10.0 + took_s, work, 10**9)
    assert LEAST <= limit.allowed() <= MOST
