"""The learned times of models and replicas: entries, factors, and the work of an unfinished
attempt."""

from __future__ import annotations

import pytest

from router.dispatch.driver.attempt_state import Attempt, AttemptState
from router.dispatch.hedging.learned_times import MODELS_MAX, LearnedTimes
from router.dispatch.hedging.ttfts import Ttfts
from router.fleet.replica import Replica
from tests.dispatch.hedging.world import new_table, played

TOKENS = 1000
TOOK_S = 0.2


def began(replica: Replica, now: float, *, is_sent: bool = True) -> tuple[AttemptState, Attempt]:
    state = AttemptState(3)
    attempt = state.begin(replica, now, TOKENS, 0, True)
    attempt.ahead = replica.pending_tokens
    if is_sent:
        state.sent(attempt)
    return state, attempt


def learned(times: LearnedTimes, replica: Replica, took_s: float, answers: int) -> Ttfts:
    """The entry of the model `m`, after answers of a replica that took this long."""
    now = 100.0
    entry = times.of("m", True, now)
    for _ in range(answers):
        state, attempt = began(replica, now)
        now += took_s
        times.shown(entry, attempt, now)
        state.content(attempt)
        state.completed(attempt, now)
        now += 1.0
        while now >= entry.refresh_at:
            entry.refresh(now)
    return entry


def test_each_model_has_an_entry_for_streams_and_one_for_whole_answers() -> None:
    planned: list[Ttfts] = []
    times = LearnedTimes(planned.append)
    stream, whole = times.of("m", True, 1.0), times.of("m", False, 1.0)
    assert times.of("m", True, 2.0) is stream
    assert (stream.is_streamed, whole.is_streamed) == (True, False)
    assert times.of(None, True, 2.0) is times.of("", True, 3.0)
    assert [(name, is_stream) for name, is_stream, _ in times.entries()] == [
        ("m", True),
        ("", True),
        ("m", False),
    ]
    assert planned == [stream, whole, times.of(None, True, 2.0)]


def test_further_models_share_an_entry_until_others_were_not_used_for_a_minute() -> None:
    times = LearnedTimes(lambda _: None)
    for number in range(MODELS_MAX):
        times.of(f"model-{number}", True, 1.0)
    shared = times.of("one more", True, 50.0)
    assert times.of("another", True, 50.0) is shared
    assert len(times.entries()) == MODELS_MAX + 1
    assert times.of("one more", True, 70.0) is not shared
    assert [name for name, _, _ in times.entries()] == ["", "one more"]


@played
def test_a_factor_is_learned_for_each_replica_and_dropped_with_it() -> None:
    table = new_table()
    fast, slow = table.add("fast"), table.add("slow")
    times = LearnedTimes(lambda _: None)
    entry = learned(times, fast, TOOK_S, 30)
    assert times.factor(slow, True) == 1.0
    learned(times, slow, 3 * TOOK_S, 8)
    assert times.factor(slow, True) > 1.5 * times.factor(fast, True)
    assert times.factor(slow, False) == 1.0  # learned apart
    table.fleet.remove("slow")
    times.fleet_changed()
    assert times.factor(slow, True) == 1.0
    state, attempt = began(fast, 1000.0)
    assert times.predict(entry, attempt) == pytest.approx(TOOK_S, rel=0.3)
    state.content(attempt)
    state.completed(attempt, 1000.0)


@played
def test_the_work_of_an_attempt_without_content_grows_with_its_time() -> None:
    table = new_table()
    replica = table.add("a")
    times = LearnedTimes(lambda _: None)
    state, attempt = began(replica, 50.0)
    assert times.computed_tokens("m", attempt, 50.0) == TOKENS  # no speed is known
    state.content(attempt)
    state.completed(attempt, 50.0)
    learned(times, replica, TOOK_S, 30)
    state, attempt = began(replica, 1000.0, is_sent=False)
    assert times.computed_tokens("m", attempt, 1001.0) == 0
    state.sent(attempt)
    half = times.computed_tokens("m", attempt, 1000.0 + TOOK_S / 2)
    assert 0.3 * TOKENS < half < 0.7 * TOKENS
    assert times.computed_tokens("m", attempt, 1001.0) == TOKENS
    state.content(attempt)
    state.completed(attempt, 1001.0)
