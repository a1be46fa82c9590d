"""Capacity learned from polls: which of two limits counts, when it is certain, what is ignored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fleet.learned_capacity import (
    FIRST,
    GROWTH,
    KV_FULL,
    KV_LEAST,
    MUCH_MORE,
    POLLS,
    POLLS_MOST,
    POLLS_PREFILL,
    POLLS_SHORT,
    PREFILL_TOKENS,
    SMOOTHING,
    LearnedCapacity,
)


def full_at(running: int) -> LearnedCapacity:
    learned = LearnedCapacity()
    for _ in range(POLLS):
        learned.observed(running, max(3, running // 20))
    assert learned.slots == running
    return learned


def test_the_smaller_of_slots_and_cache_counts() -> None:
    learned = full_at(20)
    learned.observed(20, 0, 0.5)  # 40 requests would fit into its KV cache
    assert learned.requests == 20.0
    for _ in range(40):
        learned.observed(20, 0, 1.0)  # longer prompts: 20 requests fill the KV cache
    learned.observed(4, 0, 0.5)
    assert learned.requests == pytest.approx(20.0 + (8.0 - 20.0) * SMOOTHING, rel=0.01)


def test_too_small_a_share_of_the_cache_shows_nothing() -> None:
    learned = LearnedCapacity()
    learned.observed(1, 0, KV_LEAST / 2)
    assert learned.requests is None
    learned.observed(1, 0, KV_LEAST)
    assert learned.requests == pytest.approx(1 / KV_LEAST)


def test_one_that_runs_a_little_more_is_still_full_and_much_more_is_not() -> None:
    little = full_at(100)
    little.observed(int(100 * MUCH_MORE), 0)
    assert little.slots == 110.0
    much = full_at(100)
    much.observed(int(100 * MUCH_MORE) + 1, 0)
    assert much.slots is None
    assert much.requests == 111.0  # the capacity is at least what the replica runs
    much.observed(112, 0)
    assert much.slots is None  # slightly more running requests prove nothing


def test_less_than_a_slot_more_comes_from_the_average() -> None:
    learned = full_at(2)
    for _ in range(POLLS):
        learned.observed(1, 1)
    assert learned.slots == pytest.approx(2 - SMOOTHING)
    learned.observed(2, 0)  # a change beyond the allowed factor
    assert learned.slots == 2.0


@pytest.mark.parametrize(
    ("before", "after", "is_known"),
    [(3, 4, True), (3, 3, False), (4, 3, False), (None, 4, False), (3, None, False)],
)
def test_only_a_total_of_preemptions_that_grew_is_a_preemption(
    before: int | None, after: int | None, is_known: bool
) -> None:
    learned = LearnedCapacity()
    learned.observed(5, 0, None, before)
    learned.observed(9, 1, None, after)
    assert (learned.slots == 9.0) == is_known


def test_a_full_cache_counts_from_its_limit_on() -> None:
    for usage, is_known in ((KV_FULL, True), (KV_FULL - 0.01, False)):
        learned = LearnedCapacity()
        learned.observed(9, 1, usage)
        assert (learned.slots is not None) == is_known


def test_a_restart_forgets_every_part() -> None:
    learned = full_at(20)
    learned.observed(20, 1, 0.1, 7)
    learned.forget()
    assert (learned.requests, learned.slots, learned.guess) == (None, None, FIRST)
    learned.observed(20, 1, None, 8)  # more preemptions than before the restart
    assert learned.slots is None


COUNT = st.none() | st.integers(0, 300)


@given(st.lists(st.tuples(COUNT, COUNT, st.none() | st.floats(0.0, 1.0), COUNT), max_size=30))
def test_what_is_learned_is_a_number_of_requests_that_ran(
    polls: list[tuple[int | None, int | None, float | None, int | None]],
) -> None:
    learned = LearnedCapacity()
    for running, waiting, usage, preemptions in polls:
        learned.observed(running, waiting, usage, preemptions)
        found = learned.requests
        assert found is None or 0 < found <= 300 / KV_LEAST
        assert learned.slots in (None, found)
        assert FIRST <= learned.guess <= 300 * GROWTH


def polls(learned: LearnedCapacity, *seen: tuple[int | None, int | None]) -> float | None:
    for running, waiting in seen:
        learned.observed(running, waiting)
    return learned.requests


def queue(running: int) -> list[tuple[int, int]]:
    return [(running, max(2, running // 20))] * POLLS


def test_a_request_on_its_way_in_is_no_queue() -> None:
    learned = LearnedCapacity()
    assert polls(learned, *[(3, 1), (3, 0)] * 10) is None
    assert polls(learned, *[(3, 1), (None, None)] * 10) is None
    assert polls(learned, *[(0, 5)] * 10) is None  # an engine that runs nothing hangs
    assert polls(learned, *[(n, 5) for n in range(1, 100)]) is None  # the engine's batch grows


def test_what_runs_tells_what_would_fit_into_the_cache() -> None:
    learned = LearnedCapacity()
    learned.observed(0, 0, 0.0)
    learned.observed(1, 0, 0.01)  # too little data to learn from
    assert learned.requests is None
    learned.observed(8, 0, 0.16)
    assert learned.requests == pytest.approx(50.0)
    for _ in range(30):
        learned.observed(8, 0, 0.32)  # longer prompts
    assert learned.requests == pytest.approx(25.0, rel=0.01)


def test_the_queue_of_several_prefill_batches_may_last_longer() -> None:
    learned = LearnedCapacity()
    for _ in range(3 * POLLS_PREFILL - 1):
        learned.observed(2, 2, 0.1, tokens=3 * PREFILL_TOKENS + 5)
        assert learned.slots is None
    learned.observed(2, 2, 0.1, tokens=3 * PREFILL_TOKENS + 5)
    assert learned.slots == 2.0
    learned = LearnedCapacity()
    for _ in range(POLLS_MOST):
        assert learned.slots is None
        learned.observed(2, 20, 0.1, tokens=100 * PREFILL_TOKENS)
    assert learned.slots == 2.0


def test_an_engine_with_room_that_has_run_more_is_not_full() -> None:
    """A queue at 4 running requests, after 9 ran at once: the queue waits for prefills."""
    learned = LearnedCapacity()
    learned.observed(9, 0, 0.2)
    for _ in range(10):
        learned.observed(4, 2, 0.1)
    assert learned.slots is None
    learned.observed(4, 2, KV_FULL)  # longer prompts: the cache is full
    assert learned.slots == 4.0


def test_a_full_cache_or_a_preemption_needs_one_poll() -> None:
    full, preempting = LearnedCapacity(), LearnedCapacity()
    full.observed(8, 1, 0.9)
    assert full.slots == 8.0
    preempting.observed(8, 0, 0.7, 3)
    preempting.observed(6, 2, 0.7, 4)
    assert preempting.slots == 6.0
    unknown = LearnedCapacity()
    unknown.observed(6, 2, 0.7, 4)  # the start of the full state is unknown
    assert unknown.slots is None


def test_a_poll_that_is_older_than_what_was_sent_raises_no_guess() -> None:
    learned = LearnedCapacity()
    learned.observed(4, 0, sent=11)  # seven requests may wait there by now
    assert learned.guess == FIRST
    learned.observed(10, 0, sent=11)  # one request was just sent
    assert learned.guess == GROWTH * 10


def test_what_is_not_known_is_guessed_from_what_ran() -> None:
    learned = LearnedCapacity()
    assert (learned.slots, learned.guess) == (None, FIRST)
    learned.observed(int(FIRST), 0)
    assert learned.guess == GROWTH * FIRST
    learned.observed(2, 0)
    assert learned.guess == GROWTH * FIRST
    learned.observed(12, 20)  # the learned limit was too high
    assert (learned.slots, learned.guess) == (None, GROWTH * FIRST)
    learned.observed(12, 20)
    assert learned.slots == 12.0
    learned.observed(13, 20)  # one request may have ended just before a poll
    assert learned.slots == 13.0
    learned.observed(20, 1)  # the engine was not full
    assert learned.slots is None
    learned.observed(20, 0)
    assert learned.guess == GROWTH * 20


def test_a_short_queue_shows_a_full_engine_only_if_the_running_requests_do_not_change() -> None:
    """The requests of one step wait at an engine of any size, also if it has free slots."""
    learned = LearnedCapacity()
    for running in (64, 66, 63, 65, 64, 64, 64, 65, 66):
        learned.observed(running, 1)
    assert learned.slots is None
    for _ in range(POLLS_SHORT):
        assert learned.slots is None
        learned.observed(256, 1)
    assert learned.slots == 256.0


def test_requests_that_wait_for_a_step_do_not_lower_the_slots() -> None:
    learned = full_at(20)
    for _ in range(20):
        learned.observed(17, 2, sent=19)
    assert learned.slots == 20.0
    learned.observed(17, 2, 1.0, sent=19)  # the KV cache is full
    assert learned.slots == 17.0
