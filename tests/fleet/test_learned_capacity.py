"""Capacity learned from polls: which of two limits counts, when it is certain, what is ignored."""

from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

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


class Poll(NamedTuple):
    running: int | None
    waiting: int | None
    kv_usage: float | None = None
    preemptions: int | None = None
    tokens: int = 0
    sent: int = 0


def polls(learned: LearnedCapacity, *seen: Poll | tuple[int | None, int | None]) -> float | None:
    for poll in seen:
        learned.observed(*poll)
    return learned.requests


def queue(running: int) -> list[Poll]:
    """Polls that show a full engine."""
    return [Poll(running, max(3, running // 20))] * POLLS


LONG = PREFILL_TOKENS
ONE_MORE = int(100 * MUCH_MORE)
ODD = [64, 66, 63, 65, 64, 64, 64, 65, 66]
# Each case: the polls, and the learned slots and requests after them.
CASES: dict[str, tuple[list[Poll], float | None, float | None]] = {
    # The cache: the requests that would fill it are a capacity, but no number of slots.
    "too small a share of the cache": ([Poll(1, 0, KV_LEAST / 2)], None, None),
    "a share of the cache": ([Poll(1, 0, KV_LEAST)], None, 1 / KV_LEAST),
    "longer prompts fill it with fewer": ([Poll(8, 0, 0.16)] + [Poll(8, 0, 0.32)] * 40, None, 25.0),
    "more would fit than run": ([*queue(20), Poll(20, 0, 0.5)], 20.0, 20.0),
    "fewer fit than run": ([*queue(20), *[Poll(4, 0, 0.5)] * 60], 8.0, 8.0),
    # An engine with a queue is full if the number of running requests does not grow.
    "no queue": ([Poll(50, 0), Poll(200, 0)], None, None),
    "a queue": (queue(32), 32.0, 32.0),
    "a request on its way in": ([Poll(3, 1), Poll(3, 0)] * 10, None, None),
    "polls that failed in between": ([Poll(3, 1), Poll(None, None)] * 10, None, None),
    "an engine that hangs": ([Poll(0, 5)] * 10, None, None),
    "an engine that hung in between": ([Poll(5, 2), Poll(0, 2), Poll(5, 2)], None, None),
    "a batch that grows": ([Poll(n, 5) for n in range(1, 100)], None, None),
    "longer prompts": ([*queue(100), *[Poll(40, 5)] * 60], 40.0, 40.0),
    # A short queue may consist of the requests that came since the last step.
    "a short queue, other running requests": ([Poll(n, 1) for n in ODD], None, None),
    "a short queue": ([Poll(256, 1)] * POLLS_SHORT, 256.0, 256.0),
    "one poll less": ([Poll(256, 1)] * (POLLS_SHORT - 1), None, None),
    "they wait for a step": ([*queue(20), *[Poll(17, 2, sent=19)] * 20], 20.0, 20.0),
    "they wait for the cache": ([*queue(20), *[Poll(17, 3, 1.0, sent=19)] * 60], 17.0, 17.0),
    # A queue of long prompts may wait for their prefill.
    "a prefill batch": ([Poll(8, 1, 0.1, tokens=LONG)] * POLLS_PREFILL, 8.0, 8.0),
    "a prefill batch, before": ([Poll(8, 1, 0.1, tokens=LONG)] * (POLLS_PREFILL - 1), None, 80.0),
    "two batches": ([Poll(2, 2, 0.1, tokens=2 * LONG + 5)] * 2 * POLLS_PREFILL, 2.0, 2.0),
    "two, before": ([Poll(2, 2, 0.1, tokens=2 * LONG + 5)] * (2 * POLLS_PREFILL - 1), None, 20.0),
    "at most": ([Poll(2, 20, 0.1, tokens=100 * LONG)] * POLLS_MOST, 2.0, 2.0),
    "it has run more": ([Poll(9, 0, 0.2), *[Poll(4, 2, 0.1)] * 10], None, 40.0),
    "it has run more with a free cache": ([Poll(9, 0, 0.2), Poll(4, 2, KV_FULL)], 4.0, None),
    # A full cache or a preemption needs one poll.
    "a full cache": ([Poll(9, 1, KV_FULL)], 9.0, 9.0),
    "almost a full cache": ([Poll(9, 1, KV_FULL - 0.01)], None, 9 / (KV_FULL - 0.01)),
    "a preemption": ([Poll(5, 0, None, 3), Poll(9, 1, None, 4)], 9.0, 9.0),
    "no new preemption": ([Poll(5, 0, None, 3), Poll(9, 1, None, 3)], None, None),
    "fewer preemptions": ([Poll(5, 0, None, 4), Poll(9, 1, None, 3)], None, None),
    "preemptions for the first time": ([Poll(5, 0), Poll(9, 1, None, 4)], None, None),
    "preemptions for the last time": ([Poll(5, 0, None, 3), Poll(9, 1)], None, None),
    # An engine that runs more was not full.
    "a little more": ([*queue(100), Poll(ONE_MORE, 0)], 110.0, 110.0),
    "much more": ([*queue(100), Poll(ONE_MORE + 1, 0)], None, 111.0),
    "much more, then a little": ([*queue(100), Poll(111, 0), Poll(112, 0)], None, 112.0),
    "fewer later": ([*queue(8), Poll(20, 0), Poll(5, 0), Poll(1, 0)], None, 20.0),
    "less than a slot more": ([*queue(2), *queue(1), Poll(2, 0)], 2.0, 2.0),
    "two slots of a small engine": ([*queue(2), *queue(1)], 2 - SMOOTHING, 2 - SMOOTHING),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_learned(case: str) -> None:
    seen, slots, requests = CASES[case]
    learned = LearnedCapacity()
    polls(learned, *seen)
    assert learned.slots == (None if slots is None else pytest.approx(slots, rel=0.02))
    if requests is not None:
        assert learned.requests == pytest.approx(requests, rel=0.02)
    elif slots is None:
        assert learned.requests is None


@pytest.mark.parametrize(
    ("seen", "guess"),
    [
        ([], FIRST),
        ([Poll(50, 1)], FIRST),  # it had a queue
        ([Poll(50, 0), Poll(1, 0)], 50 * GROWTH),
        ([Poll(4, 0, sent=11)], FIRST),  # seven requests may wait there by now
        ([Poll(10, 0, sent=11)], 10 * GROWTH),  # one request was just sent
        ([*queue(12), Poll(20, 1), Poll(20, 0)], 20 * GROWTH),
    ],
)
def test_what_is_guessed(seen: list[Poll], guess: float) -> None:
    learned = LearnedCapacity()
    polls(learned, *seen)
    assert learned.guess == guess


def test_a_restart_forgets_every_part() -> None:
    learned = LearnedCapacity()
    polls(learned, *queue(20), Poll(20, 1, 0.1, 7))
    learned.forget()
    assert (learned.requests, learned.slots, learned.guess) == (None, None, FIRST)
    polls(learned, Poll(20, 1, None, 8))  # more preemptions than before the restart
    assert learned.slots is None


COUNT = st.none() | st.integers(0, 300)


@given(st.lists(st.tuples(COUNT, COUNT, st.none() | st.floats(0.0, 1.0), COUNT), max_size=30))
def test_what_is_learned_is_a_number_of_requests_that_ran(
    seen: list[tuple[int | None, int | None, float | None, int | None]],
) -> None:
    learned = LearnedCapacity()
    for poll in seen:
        learned.observed(*poll)
        found = learned.requests
        assert found is None or 0 < found <= 300 / KV_LEAST
        assert learned.slots in (None, found)
        assert FIRST <= learned.guess <= 300 * GROWTH
