"""The rules of an attempt's states that no order of events at the driver reaches."""

import pytest

from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt, AttemptState, Phase, Step
from tests.dispatch.replicas import bare


def breaks(state: AttemptState, attempt: Attempt) -> int:
    flags = {"repeatable": True, "known_dead": False}
    return state.failed(attempt, Reason.REPLICA_RESET, 1.0, **flags)


def test_only_an_attempt_for_the_rest_succeeds_a_winner_and_only_after_its_end() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    assert state.content(first)
    early, late = state.begin(bare("b"), 0.0, rest=[b""]), state.begin(bare("c"), 0.0, hedge=True)
    assert not state.content(early)
    assert breaks(state, first) == Step.TRUNCATE
    assert not state.content(late)
    assert state.winner is first
    assert state.content(early)
    assert state.winner is early


def test_an_attempt_that_has_ended_stays_ended() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    assert breaks(state, first) == Step.BUDGET
    second = state.begin(bare("b"), 1.0)
    assert breaks(state, first) == Step.NOTHING
    assert not state.content(first)
    state.completed(first, 2.0)
    assert not state.over
    assert state.live == [second]
    assert state.content(second)
    state.end(Reason.CLIENT_GONE, 3.0)
    assert (state.live, second.held) == ([], False)
    assert not state.content(second)


def test_a_failed_attempt_has_its_time_of_failure() -> None:
    state = AttemptState(3)
    attempt = state.begin(bare("a"), 0.25)
    breaks(state, attempt)
    assert (attempt.began, attempt.ended) == (0.25, 1.0)


def test_a_head_counts_only_after_the_request_was_sent_and_before_content() -> None:
    state = AttemptState(3)
    attempt = state.begin(bare("a"), 0.0)
    phases = []
    state.headed(attempt)
    phases.append(attempt.phase)
    state.sent(attempt)
    state.headed(attempt)
    phases.append(attempt.phase)
    assert state.content(attempt)
    state.headed(attempt)
    phases.append(attempt.phase)
    assert phases == [Phase.CONNECTING, Phase.HEADED, Phase.WON]


def test_the_last_attempt_is_one_at_the_present_model() -> None:
    state = AttemptState(3)
    last = [state.last]
    attempt = state.begin(bare("a"), 0.0)
    last.append(state.last)
    breaks(state, attempt)
    state.fall_back()
    last.append(state.last)
    assert last == [None, attempt, None]


@pytest.mark.parametrize(("refusing", "is_stale"), [("a", False), ("b", True)])
def test_a_connection_was_not_stale_if_the_same_replica_then_refuses_one(
    refusing: str, is_stale: bool
) -> None:
    replicas = {name: bare(name) for name in "ab"}
    state = AttemptState(3)
    first = state.begin(replicas["a"], 0.0)
    flags = {"repeatable": True, "known_dead": False}
    assert state.failed(first, Reason.REPLICA_RESET, 1.0, unread=True, **flags) == Step.HERE
    assert first.stale
    second = state.begin(replicas[refusing], 1.0)
    state.failed(second, Reason.CONNECT_FAILED, 2.0, **flags)
    assert first.stale is is_stale
