"""The life of a request under any order of events, and the rules of its states one by one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router.core.errors import Reason
from router.dispatch.attempts import MOST_CONNECTS, Attempt, Commit, Kind, Life, Phase, Step
from tests.dispatch.replicas import bare

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


class Lives(RuleBasedStateMachine):
    """Events come in any order, also late ones, to any attempt, and hedges run side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Life(3)
        self.holders = [bare(f"r{number}") for number in range(4)]
        self.now = 0.0
        self.commit = Commit.NOTHING
        self.winner: Attempt | None = None
        self.phases: dict[int, int] = {}

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    def any_attempt(self, data: st.DataObject) -> Attempt:
        return data.draw(st.sampled_from(self.life.attempts))

    @initialize()
    def first(self) -> None:
        assert self.life.begin(self.holders[0], self.tick()).kind == Kind.PRIMARY

    @precondition(lambda self: not self.life.over and len(self.life.attempts) < 12)
    @rule(replica=st.integers(0, 3), hedge=st.booleans())
    def begin(self, replica: int, hedge: bool) -> None:
        reached = self.life.reached
        holder = self.holders[replica]
        attempt = self.life.begin(holder, self.tick(), hedge=hedge)
        assert attempt.kind == (Kind.HEDGE if hedge else Kind.RETRY)
        assert attempt.index == len(self.life.attempts) - 1
        assert self.life.reached == reached + (not hedge)

    @precondition(lambda self: can_continue(self.life) and len(self.life.attempts) < 12)
    @rule(replica=st.integers(0, 3))
    def go_on(self, replica: int) -> None:
        """The winner ended before its response did."""
        holder = self.holders[replica]
        attempt = self.life.begin(holder, self.tick(), continues=True)
        assert attempt.kind == Kind.CONTINUATION

    @rule(data=st.data())
    def sent(self, data: st.DataObject) -> None:
        self.life.sent(self.any_attempt(data))

    @rule(data=st.data())
    def headed(self, data: st.DataObject) -> None:
        self.life.headed(self.any_attempt(data))

    @rule()
    def status(self) -> None:
        self.life.committed_status()

    @rule(data=st.data())
    def content(self, data: st.DataObject) -> None:
        attempt = self.any_attempt(data)
        life = self.life
        was_alive = attempt.phase != Phase.ENDED and not life.over
        before = life.winner
        may_succeed = (
            before is not None and before.phase == Phase.ENDED and attempt.kind == Kind.CONTINUATION
        )
        won = self.life.content(attempt)
        assert won == (was_alive and life.winner is attempt)
        if before is not None and life.winner is not before:
            assert won
            assert may_succeed, "only a continuation succeeds a winner, and only one that has ended"
            self.winner = attempt
        elif was_alive and may_succeed:
            assert won

    @precondition(lambda self: self.life.winner is not None)
    @rule()
    def outrun(self) -> None:
        alive = self.life.alive
        losers = self.life.outrun(self.tick())
        assert losers == [a for a in alive if a is not self.life.winner]
        assert all(a.reason is Reason.HEDGE_LOST for a in losers)
        self.cancel(losers)

    @precondition(lambda self: self.life.commit != Commit.CONTENT and len(self.life.alive) > 1)
    @rule(data=st.data(), reason=REASONS)
    def aside(self, data: st.DataObject, reason: Reason) -> None:
        """An error to tell comes while another copy lives."""
        life = self.life
        attempt = data.draw(st.sampled_from(life.alive))
        before = life.put_aside
        is_kept = life.aside(attempt, reason, self.tick())
        assert is_kept == (before is None or attempt.index < before.index)
        assert life.put_aside is (attempt if is_kept else before)
        self.cancel([attempt])

    @rule(data=st.data(), reason=REASONS)
    def failed(self, data: st.DataObject, reason: Reason) -> None:
        attempt = self.any_attempt(data)
        life = self.life
        was_ended, was_over = attempt.phase == Phase.ENDED, life.over
        flags = {
            name: data.draw(st.booleans())
            for name in ("reused", "received", "repeatable", "known_dead")
        }
        step = life.failed(attempt, reason, self.tick(), **flags)
        assert attempt.phase == Phase.ENDED
        if was_ended or was_over:
            assert step == Step.NOTHING
        if step == Step.TRUNCATE:
            assert life.winner is attempt or attempt.kind == Kind.CONTINUATION
        if life.commit == Commit.CONTENT:
            assert step in (Step.NOTHING, Step.TRUNCATE)
        if step in (Step.HERE, Step.ELSEWHERE, Step.BUDGET, Step.ANSWER, Step.ASIDE):
            assert all(a.phase == Phase.ENDED for a in life.attempts)
        assert (step == Step.ASIDE) <= (life.put_aside is not None)
        if step in (Step.ELSEWHERE, Step.BUDGET, Step.ANSWER):
            assert life.put_aside is None, "what was put aside is the answer"
        if step == Step.ASIDE:
            kept = life.put_aside
            life.told()
            assert life.over
            assert life.winner is kept
        if step in (Step.ELSEWHERE, Step.BUDGET):
            assert len(life.attempts) < MOST_CONNECTS

    @rule(data=st.data())
    def completed(self, data: st.DataObject) -> None:
        attempt = self.any_attempt(data)
        was_over, was_ended = self.life.over, attempt.phase == Phase.ENDED
        self.life.completed(attempt, self.tick())
        assert attempt.phase == Phase.ENDED
        if was_ended:
            assert self.life.over == was_over, "an ended attempt's events are ignored"
        elif not was_over:
            assert self.life.over
            self.cancel(self.life.end(Reason.OK, self.tick()))

    @rule(reason=st.sampled_from([Reason.CLIENT_GONE, Reason.DRAINING, Reason.TOTAL_TIMEOUT]))
    def end(self, reason: Reason) -> None:
        alive = [a for a in self.life.attempts if a.phase != Phase.ENDED]
        ended = self.life.end(reason, self.tick())
        assert ended == alive
        self.cancel(ended)

    @staticmethod
    def cancel(attempts: Sequence[Attempt]) -> None:
        assert all(a.phase == Phase.ENDED and not a.lease.held for a in attempts)

    @invariant()
    def each_replica_counts_the_leases_held_there(self) -> None:
        held = [a.at for a in self.life.attempts if a.lease.held]
        assert [h.inflight for h in self.holders] == [held.count(h) for h in self.holders]

    @invariant()
    def commitment_only_grows(self) -> None:
        assert self.life.commit >= self.commit
        self.commit = self.life.commit

    @invariant()
    def the_winner_is_unique_and_stays_unless_it_is_succeeded(self) -> None:
        if self.winner is not None:
            assert self.life.winner is self.winner
        self.winner = self.life.winner
        won = [a for a in self.life.attempts if a.phase == Phase.WON]
        assert won in ([], [self.winner])
        assert (self.winner is not None) == (self.life.commit == Commit.CONTENT)

    @invariant()
    def phases_only_advance_and_leases_follow(self) -> None:
        for attempt in self.life.attempts:
            assert attempt.phase >= self.phases.get(attempt.index, Phase.CONNECTING)
            self.phases[attempt.index] = attempt.phase
            assert attempt.lease.held == (attempt.phase != Phase.ENDED)
            assert not attempt.ended or attempt.ended >= attempt.began
        alive = sum(1 for a in self.life.attempts if a.phase != Phase.ENDED)
        assert sum(holder.inflight for holder in self.holders) == alive

    def teardown(self) -> None:
        self.life.end(Reason.CLIENT_GONE, self.tick())
        assert self.life.over
        assert [holder.inflight for holder in self.holders] == [0, 0, 0, 0]
        for attempt in self.life.attempts:
            flags = {"reused": True, "received": False, "repeatable": True, "known_dead": True}
            late = self.life.failed(attempt, Reason.REPLICA_RESET, self.now, **flags)
            assert late == Step.NOTHING
            assert not self.life.content(attempt)


Lives.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestLives = Lives.TestCase


def can_continue(life: Life) -> bool:
    """Content is out, the one who said it has ended, and nobody else is speaking."""
    winner = life.winner
    return winner is not None and winner.phase == Phase.ENDED and not life.over and not life.alive


# -- one by one ---------------------------------------------------------------------------------


def fail(life: Life, reason: Reason, replica: str = "", **flags: bool) -> int:
    """Begin an attempt and let it fail; by default at a new replica over a new connection."""
    attempt = life.begin(bare(replica or f"r{len(life.attempts)}"), 0.0)
    if reason not in (Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT):
        life.sent(attempt)
    flags = {
        "reused": False,
        "received": False,
        "repeatable": True,
        "known_dead": False,
        **flags,
    }
    return life.failed(attempt, reason, 1.0, **flags)


def test_a_stale_connection_is_replaced_once_a_replica() -> None:
    life = Life(3)
    assert fail(life, Reason.REPLICA_RESET, "a", reused=True) == Step.HERE
    assert fail(life, Reason.REPLICA_RESET, "a", reused=True) == Step.ANSWER


def test_a_stale_connection_uses_nothing_up() -> None:
    life = Life(2)
    assert fail(life, Reason.REPLICA_RESET, "a", reused=True, repeatable=False) == Step.HERE
    assert life.lost == 0
    assert fail(life, Reason.REPLICA_RESET, "a") == Step.BUDGET


def test_what_kills_replicas_does_not_tour_the_fleet() -> None:
    life = Life(10)
    assert fail(life, Reason.REPLICA_RESET) == Step.BUDGET
    assert fail(life, Reason.REPLICA_RESET) == Step.ANSWER
    life = Life(10)
    assert fail(life, Reason.REPLICA_RESET, known_dead=True) == Step.ELSEWHERE
    assert fail(life, Reason.EMPTY_STREAM, known_dead=True) == Step.ANSWER


def test_a_dead_fleet_is_not_searched_to_its_end() -> None:
    life = Life(3)
    steps = [fail(life, Reason.CONNECT_FAILED) for _ in range(MOST_CONNECTS)]
    assert steps == [Step.ELSEWHERE] * (MOST_CONNECTS - 1) + [Step.ANSWER]


def test_busy_replicas_use_attempts_up() -> None:
    life = Life(3)
    steps = [fail(life, Reason.REPLICA_BUSY) for _ in range(3)]
    assert steps == [Step.BUDGET, Step.BUDGET, Step.ANSWER]


def test_failed_connects_use_no_attempts_up() -> None:
    """`most` counts the attempts that may reach a replica; these reached none."""
    life = Life(2)
    for _ in range(3):
        assert fail(life, Reason.CONNECT_FAILED) == Step.ELSEWHERE
    assert fail(life, Reason.REPLICA_BUSY) == Step.BUDGET
    assert fail(life, Reason.REPLICA_BUSY) == Step.ANSWER


def test_after_content_a_failure_truncates() -> None:
    life = Life(3)
    attempt = life.begin(bare("a"), 0.0)
    life.sent(attempt)
    life.headed(attempt)
    assert life.content(attempt)
    flags = {"reused": True, "received": False, "repeatable": True, "known_dead": True}
    assert life.failed(attempt, Reason.REPLICA_RESET, 1.0, **flags) == Step.TRUNCATE


def test_a_continuation_succeeds_a_winner_that_has_ended() -> None:
    life = Life(3)
    first = life.begin(bare("a"), 0.0)
    assert life.content(first)
    flags = {"reused": False, "received": True, "repeatable": True, "known_dead": False}
    assert life.failed(first, Reason.REPLICA_RESET, 1.0, **flags) == Step.TRUNCATE
    busy = life.begin(bare("b"), 1.0, continues=True)
    assert life.failed(busy, Reason.REPLICA_BUSY, 2.0, **flags) == Step.TRUNCATE
    assert life.winner is first
    second = life.begin(bare("c"), 2.0, continues=True)
    assert life.content(second)
    assert life.winner is second
    assert (life.continuations, life.commit) == (2, Commit.CONTENT)
    assert not life.content(busy)
    life.completed(second, 3.0)
    assert life.over


def test_nothing_else_does() -> None:
    life = Life(3)
    first = life.begin(bare("a"), 0.0)
    late = life.begin(bare("b"), 0.0, hedge=True)
    assert life.content(first)
    flags = {"reused": False, "received": True, "repeatable": True, "known_dead": False}
    assert life.failed(first, Reason.REPLICA_RESET, 1.0, **flags) == Step.TRUNCATE
    assert not life.content(late)
    assert life.winner is first


def test_a_continuation_waits_until_the_winner_has_ended() -> None:
    life = Life(3)
    first = life.begin(bare("a"), 0.0)
    assert life.content(first)
    early = life.begin(bare("b"), 0.0, continues=True)
    assert not life.content(early)
    assert life.winner is first


def test_after_a_status_another_attempt_may_follow() -> None:
    life = Life(3)
    life.committed_status()
    assert fail(life, Reason.REPLICA_RESET) == Step.BUDGET
    assert life.commit == Commit.STATUS


def test_a_loser_is_heard_no_more() -> None:
    life = Life(3)
    first, second = life.begin(bare("a"), 0.0), life.begin(bare("b"), 0.0)
    assert life.content(second)
    assert not life.content(first)
    flags = {"reused": False, "received": True, "repeatable": True, "known_dead": False}
    assert life.failed(first, Reason.REPLICA_RESET, 1.0, **flags) == Step.NOTHING
    assert life.winner is second


def test_while_another_is_alive_a_failure_changes_nothing() -> None:
    life = Life(3)
    first, _ = life.begin(bare("a"), 0.0), life.begin(bare("b"), 0.0)
    flags = {"reused": False, "received": False, "repeatable": True, "known_dead": False}
    assert life.failed(first, Reason.CONNECT_FAILED, 1.0, **flags) == Step.NOTHING


NEW = {"reused": False, "received": True, "repeatable": True, "known_dead": False}


def test_both_copies_failing_is_the_first_ones_failure() -> None:
    life = Life(3)
    first = life.begin(bare("a"), 0.0)
    hedge = life.begin(bare("b"), 0.1, hedge=True)
    assert life.failed(hedge, Reason.BAD_RESPONSE, 1.0, **NEW) == Step.NOTHING
    assert life.failed(first, Reason.TTFT_TIMEOUT, 2.0, **NEW) == Step.ANSWER
    assert life.blame is Reason.TTFT_TIMEOUT


def test_the_hedge_alone_is_to_blame_where_the_first_never_got_there() -> None:
    life = Life(3)
    first = life.begin(bare("a"), 0.0)
    hedge = life.begin(bare("b"), 0.1, hedge=True)
    assert life.failed(first, Reason.CONNECT_TIMEOUT, 1.0, **NEW) == Step.NOTHING
    assert life.failed(hedge, Reason.TTFT_TIMEOUT, 2.0, **NEW) == Step.ANSWER
    assert life.blame is Reason.TTFT_TIMEOUT


def test_what_kills_both_copies_is_not_tried_on_a_third() -> None:
    life = Life(10)
    first = life.begin(bare("a"), 0.0)
    hedge = life.begin(bare("b"), 0.1, hedge=True)
    assert life.failed(first, Reason.REPLICA_RESET, 1.0, **NEW) == Step.NOTHING
    assert life.failed(hedge, Reason.REPLICA_RESET, 2.0, **NEW) == Step.ANSWER
    assert life.blame is Reason.REPLICA_RESET


def test_what_was_put_aside_is_told_when_the_other_fails() -> None:
    life = Life(3)
    first = life.begin(bare("a"), 0.0)
    hedge = life.begin(bare("b"), 0.1, hedge=True)
    assert life.aside(first, Reason.SERVER_ERROR, 1.0)
    assert life.failed(hedge, Reason.REPLICA_RESET, 2.0, **NEW) == Step.ASIDE
    life.told()
    assert life.winner is first


def test_what_was_put_aside_is_forgotten_when_the_other_wins() -> None:
    life = Life(3)
    first = life.begin(bare("a"), 0.0)
    hedge = life.begin(bare("b"), 0.1, hedge=True)
    assert life.aside(first, Reason.SERVER_ERROR, 1.0)
    assert life.content(hedge)
    assert life.failed(hedge, Reason.REPLICA_RESET, 2.0, **NEW) == Step.TRUNCATE


def test_a_late_completion_ends_nothing() -> None:
    life = Life(3)
    first = life.begin(bare("a"), 0.0)
    flags = {"reused": False, "received": False, "repeatable": True, "known_dead": False}
    life.failed(first, Reason.CONNECT_FAILED, 1.0, **flags)
    second = life.begin(bare("b"), 1.0)
    life.completed(first, 2.0)
    assert not life.over
    assert life.content(second)
