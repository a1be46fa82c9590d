"""The attempts of a request under any order of events, and each rule of their states."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router.core.errors import Reason
from router.dispatch.driver.attempt_state import (
    MOST_CONNECTS,
    Attempt,
    AttemptState,
    Commit,
    Kind,
    Phase,
    Step,
)
from tests.dispatch.replicas import bare
from tests.examples import examples

REASONS = st.sampled_from(
    [
        Reason.CONNECT_FAILED,
        Reason.CONNECT_TIMEOUT,
        Reason.NO_FILES,
        Reason.REPLICA_RESET,
        Reason.EMPTY_STREAM,
        Reason.STREAM_ERROR,
        Reason.REPLICA_BUSY,
        Reason.BAD_RESPONSE,
        Reason.TTFT_TIMEOUT,
        Reason.TOTAL_TIMEOUT,
    ]
)


class Attempts(RuleBasedStateMachine):
    """Events come late and in any order, to any attempt, and hedges run in parallel."""

    def __init__(self) -> None:
        super().__init__()
        self.state = AttemptState(3)
        self.holders = [bare(f"r{number}") for number in range(4)]
        self.now = 0.0
        self.commit = Commit.NOTHING
        self.winner: Attempt | None = None
        self.phases: dict[int, int] = {}

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    def any_attempt(self, data: st.DataObject) -> Attempt:
        return data.draw(st.sampled_from(self.state.attempts))

    @initialize()
    def first(self) -> None:
        assert self.state.begin(self.holders[0], self.tick()).kind == Kind.PRIMARY

    @precondition(lambda self: not self.state.over and len(self.state.attempts) < 12)
    @rule(replica=st.integers(0, 3), hedge=st.booleans())
    def begin(self, replica: int, hedge: bool) -> None:
        reached = self.state.reached
        holder = self.holders[replica]
        attempt = self.state.begin(holder, self.tick(), hedge=hedge)
        assert attempt.kind == (Kind.HEDGE if hedge else Kind.RETRY)
        assert attempt.index == len(self.state.attempts) - 1
        assert self.state.reached == reached + (not hedge)

    @precondition(lambda self: can_resume(self.state) and len(self.state.attempts) < 12)
    @rule(replica=st.integers(0, 3))
    def go_on(self, replica: int) -> None:
        """The winning attempt ended before the end of its response."""
        holder = self.holders[replica]
        attempt = self.state.begin(holder, self.tick(), rest=[b""])
        assert attempt.kind == Kind.REST

    @rule(data=st.data())
    def sent(self, data: st.DataObject) -> None:
        self.state.sent(self.any_attempt(data))

    @rule(data=st.data())
    def headed(self, data: st.DataObject) -> None:
        self.state.headed(self.any_attempt(data))

    @rule()
    def status(self) -> None:
        self.state.committed_status()

    @rule(data=st.data())
    def content(self, data: st.DataObject) -> None:
        attempt = self.any_attempt(data)
        state = self.state
        was_alive = attempt.phase != Phase.ENDED and not state.over
        before = state.winner
        may_succeed = (
            before is not None and before.phase == Phase.ENDED and attempt.kind == Kind.REST
        )
        won = self.state.content(attempt)
        assert won == (was_alive and state.winner is attempt)
        if before is not None and state.winner is not before:
            assert won
            assert may_succeed, "only an attempt for the rest succeeds a winner that has ended"
            self.winner = attempt
        elif was_alive and may_succeed:
            assert won

    @precondition(lambda self: self.state.winner is not None)
    @rule()
    def outrun(self) -> None:
        alive = self.state.alive
        losers = self.state.outrun(self.tick())
        assert losers == [a for a in alive if a is not self.state.winner]
        assert all(a.reason is Reason.HEDGE_LOST for a in losers)
        self.cancel(losers)

    @precondition(lambda self: self.state.commit != Commit.CONTENT and len(self.state.alive) > 1)
    @rule(data=st.data(), reason=REASONS)
    def keep_error(self, data: st.DataObject, reason: Reason) -> None:
        """A reportable error arrives while another copy is running."""
        state = self.state
        attempt = data.draw(st.sampled_from(state.alive))
        before = state.kept_error
        is_kept = state.keep_error(attempt, reason, self.tick())
        assert is_kept == (before is None or attempt.index < before.index)
        assert state.kept_error is (attempt if is_kept else before)
        self.cancel([attempt])

    @rule(data=st.data(), reason=REASONS)
    def failed(self, data: st.DataObject, reason: Reason) -> None:
        attempt = self.any_attempt(data)
        state = self.state
        was_ended, was_over = attempt.phase == Phase.ENDED, state.over
        flags = {
            name: data.draw(st.booleans())
            for name in ("reused", "received", "repeatable", "known_dead")
        }
        step = state.failed(attempt, reason, self.tick(), **flags)
        assert attempt.phase == Phase.ENDED
        if was_ended or was_over:
            assert step == Step.NOTHING
        if step == Step.TRUNCATE:
            assert state.winner is attempt or attempt.kind == Kind.REST
        if state.commit == Commit.CONTENT:
            assert step in (Step.NOTHING, Step.TRUNCATE)
        if step in (Step.HERE, Step.ELSEWHERE, Step.BUDGET, Step.ANSWER, Step.KEPT_ERROR):
            assert all(a.phase == Phase.ENDED for a in state.attempts)
        assert (step == Step.KEPT_ERROR) <= (state.kept_error is not None)
        if step in (Step.ELSEWHERE, Step.BUDGET, Step.ANSWER):
            assert state.kept_error is None, "what was put aside is the answer"
        if step == Step.KEPT_ERROR:
            kept = state.kept_error
            state.kept_error_wins()
            assert state.over
            assert state.winner is kept
        if step in (Step.ELSEWHERE, Step.BUDGET):
            assert len(state.attempts) < MOST_CONNECTS

    @rule(data=st.data())
    def completed(self, data: st.DataObject) -> None:
        attempt = self.any_attempt(data)
        was_over, was_ended = self.state.over, attempt.phase == Phase.ENDED
        self.state.completed(attempt, self.tick())
        assert attempt.phase == Phase.ENDED
        if was_ended:
            assert self.state.over == was_over, "an ended attempt's events are ignored"
        elif not was_over:
            assert self.state.over
            self.cancel(self.state.end(Reason.OK, self.tick()))

    @rule(reason=st.sampled_from([Reason.CLIENT_GONE, Reason.DRAINING, Reason.TOTAL_TIMEOUT]))
    def end(self, reason: Reason) -> None:
        alive = [a for a in self.state.attempts if a.phase != Phase.ENDED]
        ended = self.state.end(reason, self.tick())
        assert ended == alive
        self.cancel(ended)

    @staticmethod
    def cancel(attempts: Sequence[Attempt]) -> None:
        assert all(a.phase == Phase.ENDED and not a.lease.held for a in attempts)

    @invariant()
    def each_replica_counts_the_leases_held_there(self) -> None:
        held = [a.at for a in self.state.attempts if a.lease.held]
        assert [h.inflight for h in self.holders] == [held.count(h) for h in self.holders]

    @invariant()
    def commitment_only_grows(self) -> None:
        assert self.state.commit >= self.commit
        self.commit = self.state.commit

    @invariant()
    def the_winner_is_unique_and_stays_unless_it_is_succeeded(self) -> None:
        if self.winner is not None:
            assert self.state.winner is self.winner
        self.winner = self.state.winner
        won = [a for a in self.state.attempts if a.phase == Phase.WON]
        assert won in ([], [self.winner])
        assert (self.winner is not None) == (self.state.commit == Commit.CONTENT)

    @invariant()
    def phases_only_advance_and_leases_follow(self) -> None:
        for attempt in self.state.attempts:
            assert attempt.phase >= self.phases.get(attempt.index, Phase.CONNECTING)
            self.phases[attempt.index] = attempt.phase
            assert attempt.lease.held == (attempt.phase != Phase.ENDED)
            assert not attempt.ended or attempt.ended >= attempt.began
        alive = sum(1 for a in self.state.attempts if a.phase != Phase.ENDED)
        assert sum(holder.inflight for holder in self.holders) == alive

    def teardown(self) -> None:
        self.state.end(Reason.CLIENT_GONE, self.tick())
        assert self.state.over
        assert [holder.inflight for holder in self.holders] == [0, 0, 0, 0]
        for attempt in self.state.attempts:
            flags = {"reused": True, "received": False, "repeatable": True, "known_dead": True}
            late = self.state.failed(attempt, Reason.REPLICA_RESET, self.now, **flags)
            assert late == Step.NOTHING
            assert not self.state.content(attempt)


Attempts.TestCase.settings = examples(150, steps=30)
TestAttempts = Attempts.TestCase


def can_resume(state: AttemptState) -> bool:
    """Content was sent, the attempt that sent it has ended, and no other attempt is sending."""
    winner = state.winner
    return winner is not None and winner.phase == Phase.ENDED and not state.over and not state.alive


# -- one by one ---------------------------------------------------------------------------------


def fail(state: AttemptState, reason: Reason, replica: str = "", **flags: bool) -> int:
    """Begin an attempt and let it fail; by default at a new replica over a new connection."""
    attempt = state.begin(bare(replica or f"r{len(state.attempts)}"), 0.0)
    if reason not in (Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT):
        state.sent(attempt)
    flags = {
        "reused": False,
        "received": False,
        "repeatable": True,
        "known_dead": False,
        **flags,
    }
    return state.failed(attempt, reason, 1.0, **flags)


def test_a_stale_connection_is_replaced_once_a_replica() -> None:
    state = AttemptState(3)
    assert fail(state, Reason.REPLICA_RESET, "a", reused=True) == Step.HERE
    assert fail(state, Reason.REPLICA_RESET, "a", reused=True) == Step.ANSWER


def test_a_stale_connection_uses_nothing_up() -> None:
    state = AttemptState(2)
    assert fail(state, Reason.REPLICA_RESET, "a", reused=True, repeatable=False) == Step.HERE
    assert state.lost == 0
    assert fail(state, Reason.REPLICA_RESET, "a") == Step.BUDGET


def test_a_request_that_kills_replicas_is_not_tried_on_all() -> None:
    state = AttemptState(10)
    assert fail(state, Reason.REPLICA_RESET) == Step.BUDGET
    assert fail(state, Reason.REPLICA_RESET) == Step.ANSWER
    state = AttemptState(10)
    assert fail(state, Reason.REPLICA_RESET, known_dead=True) == Step.ELSEWHERE
    assert fail(state, Reason.EMPTY_STREAM, known_dead=True) == Step.ANSWER


def test_not_every_replica_of_a_dead_fleet_is_tried() -> None:
    state = AttemptState(3)
    steps = [fail(state, Reason.CONNECT_FAILED) for _ in range(MOST_CONNECTS)]
    assert steps == [Step.ELSEWHERE] * (MOST_CONNECTS - 1) + [Step.ANSWER]


def test_busy_replicas_use_attempts_up() -> None:
    state = AttemptState(3)
    steps = [fail(state, Reason.REPLICA_BUSY) for _ in range(3)]
    assert steps == [Step.BUDGET, Step.BUDGET, Step.ANSWER]


def test_failed_connects_use_no_attempts_up() -> None:
    """`most` counts attempts that may reach a replica; a failed connect reaches no replica."""
    state = AttemptState(2)
    for _ in range(3):
        assert fail(state, Reason.CONNECT_FAILED) == Step.ELSEWHERE
    assert fail(state, Reason.REPLICA_BUSY) == Step.BUDGET
    assert fail(state, Reason.REPLICA_BUSY) == Step.ANSWER


def test_after_content_a_failure_truncates() -> None:
    state = AttemptState(3)
    attempt = state.begin(bare("a"), 0.0)
    state.sent(attempt)
    state.headed(attempt)
    assert state.content(attempt)
    flags = {"reused": True, "received": False, "repeatable": True, "known_dead": True}
    assert state.failed(attempt, Reason.REPLICA_RESET, 1.0, **flags) == Step.TRUNCATE


def test_an_attempt_for_the_rest_succeeds_a_winner_that_has_ended() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    assert state.content(first)
    flags = {"reused": False, "received": True, "repeatable": True, "known_dead": False}
    assert state.failed(first, Reason.REPLICA_RESET, 1.0, **flags) == Step.TRUNCATE
    busy = state.begin(bare("b"), 1.0, rest=[b""])
    assert state.failed(busy, Reason.REPLICA_BUSY, 2.0, **flags) == Step.TRUNCATE
    assert state.winner is first
    second = state.begin(bare("c"), 2.0, rest=[b""])
    assert state.content(second)
    assert state.winner is second
    assert (state.resumptions, state.commit) == (2, Commit.CONTENT)
    assert not state.content(busy)
    state.completed(second, 3.0)
    assert state.over


def test_nothing_else_does() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    late = state.begin(bare("b"), 0.0, hedge=True)
    assert state.content(first)
    flags = {"reused": False, "received": True, "repeatable": True, "known_dead": False}
    assert state.failed(first, Reason.REPLICA_RESET, 1.0, **flags) == Step.TRUNCATE
    assert not state.content(late)
    assert state.winner is first


def test_an_attempt_for_the_rest_waits_until_the_winner_has_ended() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    assert state.content(first)
    early = state.begin(bare("b"), 0.0, rest=[b""])
    assert not state.content(early)
    assert state.winner is first


def test_after_a_status_another_attempt_may_follow() -> None:
    state = AttemptState(3)
    state.committed_status()
    assert fail(state, Reason.REPLICA_RESET) == Step.BUDGET
    assert state.commit == Commit.STATUS


def test_events_of_the_losing_attempt_are_ignored() -> None:
    state = AttemptState(3)
    first, second = state.begin(bare("a"), 0.0), state.begin(bare("b"), 0.0)
    assert state.content(second)
    assert not state.content(first)
    flags = {"reused": False, "received": True, "repeatable": True, "known_dead": False}
    assert state.failed(first, Reason.REPLICA_RESET, 1.0, **flags) == Step.NOTHING
    assert state.winner is second


def test_a_failure_changes_nothing_while_another_attempt_runs() -> None:
    state = AttemptState(3)
    first, _ = state.begin(bare("a"), 0.0), state.begin(bare("b"), 0.0)
    flags = {"reused": False, "received": False, "repeatable": True, "known_dead": False}
    assert state.failed(first, Reason.CONNECT_FAILED, 1.0, **flags) == Step.NOTHING


NEW = {"reused": False, "received": True, "repeatable": True, "known_dead": False}


def test_both_copies_failing_is_the_first_ones_failure() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    hedge = state.begin(bare("b"), 0.1, hedge=True)
    assert state.failed(hedge, Reason.BAD_RESPONSE, 1.0, **NEW) == Step.NOTHING
    assert state.failed(first, Reason.TTFT_TIMEOUT, 2.0, **NEW) == Step.ANSWER
    assert state.blame is Reason.TTFT_TIMEOUT


def test_the_copys_failure_counts_if_the_first_never_connected() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    hedge = state.begin(bare("b"), 0.1, hedge=True)
    assert state.failed(first, Reason.CONNECT_TIMEOUT, 1.0, **NEW) == Step.NOTHING
    assert state.failed(hedge, Reason.TTFT_TIMEOUT, 2.0, **NEW) == Step.ANSWER
    assert state.blame is Reason.TTFT_TIMEOUT


def test_what_kills_both_copies_is_not_tried_on_a_third() -> None:
    state = AttemptState(10)
    first = state.begin(bare("a"), 0.0)
    hedge = state.begin(bare("b"), 0.1, hedge=True)
    assert state.failed(first, Reason.REPLICA_RESET, 1.0, **NEW) == Step.NOTHING
    assert state.failed(hedge, Reason.REPLICA_RESET, 2.0, **NEW) == Step.ANSWER
    assert state.blame is Reason.REPLICA_RESET


def test_a_held_response_is_sent_if_the_other_attempt_fails() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    hedge = state.begin(bare("b"), 0.1, hedge=True)
    assert state.keep_error(first, Reason.SERVER_ERROR, 1.0)
    assert state.failed(hedge, Reason.REPLICA_RESET, 2.0, **NEW) == Step.KEPT_ERROR
    state.kept_error_wins()
    assert state.winner is first


def test_a_held_response_is_dropped_if_the_other_attempt_wins() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    hedge = state.begin(bare("b"), 0.1, hedge=True)
    assert state.keep_error(first, Reason.SERVER_ERROR, 1.0)
    assert state.content(hedge)
    assert state.failed(hedge, Reason.REPLICA_RESET, 2.0, **NEW) == Step.TRUNCATE


def test_a_late_completion_ends_nothing() -> None:
    state = AttemptState(3)
    first = state.begin(bare("a"), 0.0)
    flags = {"reused": False, "received": False, "repeatable": True, "known_dead": False}
    state.failed(first, Reason.CONNECT_FAILED, 1.0, **flags)
    second = state.begin(bare("b"), 1.0)
    state.completed(first, 2.0)
    assert not state.over
    assert state.content(second)
