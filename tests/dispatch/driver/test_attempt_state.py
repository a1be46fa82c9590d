"""The rules of an attempt's states that no order of events at the driver reaches."""

from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt, AttemptState, Step
from tests.dispatch.replicas import bare


def breaks(state: AttemptState, attempt: Attempt) -> int:
    flags = {"reused": False, "received": True, "repeatable": True, "known_dead": False}
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
