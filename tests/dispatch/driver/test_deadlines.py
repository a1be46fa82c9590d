"""The next check of a request's time limits is never later than a limit."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router.config.model import Timeouts
from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt, Commit
from router.dispatch.driver.deadlines import Deadlines, Passed
from router.dispatch.rules import Times
from router.intake.routes import JSON, Route
from router.wire.sweep import NEVER
from tests.dispatch.driven import World
from tests.examples import examples

TIMES = Timeouts(
    first_token_s=4.0, whole_s=8.0, token_gap_s=2.0, total_s=30.0, commit_after_s=3.0, connect_s=1.0
)
STALL_S = 5.0
ROUTES = {
    "chat": Route("chat", True, JSON, True, streams_events=True),
    "light": Route("tokenize", True, JSON, True, light=True),
    "other": Route("other", False, JSON, True),
}


def deadlines_of(
    route: str = "chat", *, streams: bool = True, times: Timeouts = TIMES
) -> Deadlines:
    # The pool allows a longer connect timeout, so each attempt has its own.
    return Deadlines(Times(times, 2.0), ROUTES[route], 0.0, streams=streams, most=3)


class Limits(RuleBasedStateMachine):
    """`active` has the times that the rules of the module's table demand, by name."""

    @initialize(
        route=st.sampled_from(list(ROUTES)),
        streams=st.booleans(),
        total_s=st.sampled_from([0.0, 30.0]),
        commit_after_s=st.sampled_from([0.0, 3.0]),
    )
    def arrives(self, route: str, streams: bool, total_s: float, commit_after_s: float) -> None:
        times = Timeouts(
            first_token_s=4.0,
            token_gap_s=2.0,
            total_s=total_s,
            connect_s=1.0,
            commit_after_s=commit_after_s,
        )
        self.world = World(1)
        self.now = 0.0
        self.deadlines = deadlines_of(route, streams=streams, times=times)
        self.times = self.deadlines.times
        self.active: dict[str, float] = {}
        if total_s:
            self.active["total"] = total_s
        if commit_after_s and streams and route == "chat":
            self.active["comment"] = commit_after_s
        self.first: dict[Attempt, float] = {}
        self.connect: dict[Attempt, float] = {}
        self.until = NEVER
        self.queued = self.shown = self.paused = False

    @property
    def live(self) -> list[Attempt]:
        return self.deadlines.state.live

    @precondition(lambda self: not self.shown and not self.queued and not self.live)
    @rule(wait_s=st.sampled_from([0.5, 2.0, 40.0]))
    def limited(self, wait_s: float) -> None:
        self.until = self.active["begin"] = self.now + wait_s
        self.deadlines.limited(self.until)

    @precondition(lambda self: not self.shown and not self.queued and not self.live)
    @rule()
    def waits(self) -> None:
        self.queued = True
        self.active.pop("begin", None)
        self.deadlines.queued(self.now)

    @precondition(lambda self: self.queued)
    @rule()
    def granted(self) -> None:
        self.queued = False
        self.deadlines.granted(self.now)
        if self.until < NEVER:
            self.active["begin"] = self.until
        if "comment" in self.active and self.deadlines.state.commit == Commit.NOTHING:
            self.active["comment"] = self.times.commit_after_s

    @precondition(lambda self: not self.queued and len(self.live) < 2)
    @rule(is_rest=st.booleans())
    def begins(self, is_rest: bool) -> None:
        rest = [b"rest"] if is_rest and self.shown and not self.live else None
        if self.shown and rest is None:
            return
        replica = self.world.replicas[0]
        attempt = self.deadlines.state.begin(replica, self.now, rest=rest)
        self.deadlines.began(attempt, self.now)
        if not self.paused:
            self.first[attempt] = self.now + attempt_limit(self.deadlines)
        self.connect[attempt] = self.now + self.times.connect_s
        if rest is not None:
            self.active.pop("silence", None)
            self.deadlines.awaits_rest()

    @precondition(lambda self: bool(self.connect))
    @rule()
    def connects(self) -> None:
        attempt = next(iter(self.connect))
        del self.connect[attempt]
        self.deadlines.connected(attempt)
        self.deadlines.state.sent(attempt)

    @precondition(lambda self: bool(self.live))
    @rule(has_comments=st.booleans())
    def shows(self, has_comments: bool) -> None:
        attempt, state = self.live[0], self.deadlines.state
        if state.winner is attempt or not state.content(attempt):
            return
        self.deadlines.won(attempt)
        self.deadlines.content(self.now, has_comments)
        losers = [other for other in self.live if other is not attempt]
        state.outrun(self.now)
        for loser in losers:
            self.first.pop(loser, None)
            self.connect.pop(loser, None)
        self.first.pop(attempt, None)
        self.shown = True
        self.active.pop("begin", None)
        self.active.pop("comment", None)
        if has_comments and self.times.commit_after_s:
            self.active["comment"] = self.now + self.times.commit_after_s
        self.active["silence"] = self.now + self.times.token_gap_s

    @precondition(lambda self: bool(self.live))
    @rule()
    def fails(self) -> None:
        attempt = self.live[0]
        state = self.deadlines.state
        state.keep_error(attempt, Reason.REPLICA_RESET, self.now)
        self.first.pop(attempt, None)
        self.connect.pop(attempt, None)

    @precondition(lambda self: "comment" in self.active)
    @rule()
    def comments(self) -> None:
        self.deadlines.commented(self.now)
        self.active["comment"] = self.now + self.times.commit_after_s

    @rule()
    def pauses(self) -> None:
        self.paused = True
        self.active["reading"] = self.now + STALL_S
        self.first.clear()
        self.deadlines.paused(self.now, STALL_S)

    @precondition(lambda self: self.paused)
    @rule()
    def resumes(self) -> None:
        self.paused = False
        del self.active["reading"]
        self.deadlines.resumed(self.now)
        soonest = self.now + self.times.token_gap_s
        if "silence" in self.active:
            self.active["silence"] = soonest
        for attempt in self.live:
            if attempt is not self.deadlines.state.winner:
                limit = attempt.began + attempt_limit(self.deadlines)
                self.first[attempt] = max(soonest, limit)

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0]))
    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.deadlines.update()

    @invariant()
    def nothing_is_forgotten(self) -> None:
        if not hasattr(self, "active"):
            return
        suspended = ("begin", "silence") if self.paused else ()
        dues = [due for name, due in self.active.items() if name not in suspended]
        dues += [*self.first.values(), *self.connect.values()]
        dues += [attempt.work_due for attempt in self.live]
        assert self.deadlines.next_check <= min(dues, default=NEVER)
        self.deadlines.update()
        assert self.deadlines.next_check == self.deadlines.next_due() == min(dues, default=NEVER)


def attempt_limit(deadlines: Deadlines) -> float:
    """Seconds to the first content, by the rules of `timeouts`."""
    if not deadlines.waits_for_whole:
        return deadlines.times.first_token_s
    return deadlines.times.whole_s if deadlines.client_deadline == NEVER else NEVER


Limits.TestCase.settings = examples(200, steps=30)
TestLimits = Limits.TestCase


@pytest.mark.parametrize(
    "event, at, found",
    [
        ("", 29.9, Passed.NOTHING),
        ("", 30.0, Passed.TOTAL),
        ("limited", 2.0, Passed.DEADLINE),
        ("content", 3.0, Passed.SILENCE),
        ("content paused", 5.5, Passed.NOTHING),
        ("content paused", 6.0, Passed.READING),
        ("limited paused", 5.5, Passed.NOTHING),
        ("content paused", 30.0, Passed.TOTAL),
    ],
)
def test_which_limit_has_passed(event: str, at: float, found: int) -> None:
    deadlines = deadlines_of()
    for each in event.split():
        if each == "limited":
            deadlines.limited(2.0)
        elif each == "content":
            deadlines.content(1.0, True)
        else:
            deadlines.paused(1.0, STALL_S)
    assert deadlines.passed(at) == found


def test_the_waits_in_the_queue_add_up() -> None:
    deadlines = deadlines_of()
    deadlines.queued(1.0)
    assert deadlines.waited_s(3.0) == 2.0
    deadlines.granted(4.0)
    assert deadlines.waited_s(9.0) == 3.0
    deadlines.queued(10.0)
    assert deadlines.waited_s(12.0) == 5.0


def test_bytes_move_the_end_of_a_silence() -> None:
    deadlines = deadlines_of()
    deadlines.content(1.0, False)
    assert not deadlines.is_silent(2.5, 3.0)
    assert deadlines.next_due() == 4.5
    assert deadlines.is_silent(2.5, 4.5)


def test_the_first_content_sets_the_deadline() -> None:
    deadlines = deadlines_of(streams=False)
    assert deadlines.next_check == 30.0
    deadlines.content(1.0, False)
    assert deadlines.next_check == 3.0


def test_an_early_200_that_was_postponed_in_the_queue_is_due_after_the_wait() -> None:
    deadlines = deadlines_of()
    deadlines.queued(1.0)
    deadlines.commented(3.0)
    assert not deadlines.needs_comment(5.0)
    deadlines.granted(5.0)
    assert deadlines.needs_comment(5.0)


def test_the_work_of_a_replica_is_first_checked_after_the_shortest_silence() -> None:
    world = World(1)
    (attempt,) = world.arrives("a").driver.state.live
    assert attempt.work_due == world.time.at + attempt.at.health.suspect_min_s


def test_an_answer_is_relayed_from_its_first_content_until_it_breaks() -> None:
    deadlines = deadlines_of()
    states = [deadlines.is_relayed]
    deadlines.content(1.0, False)
    states.append(deadlines.is_relayed)
    deadlines.awaits_rest()
    states.append(deadlines.is_relayed)
    assert states == [False, True, False]


@pytest.mark.parametrize("began", [0.0, 0.5, 1000.0])
def test_waits_in_the_queue_are_added(began: float) -> None:
    deadlines = deadlines_of()
    deadlines.queued(began)
    assert deadlines.waited_s(began + 2.0) == 2.0
    deadlines.granted(began + 2.0)
    deadlines.queued(began + 3.0)
    assert deadlines.waited_s(began + 4.0) == 3.0
