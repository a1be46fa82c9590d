"""The attempts of one request on the wire: begins them, sees them fail, lets one race another.

The state machine (`attempts.Life`) says what an event means; here it is done. Most requests have
one attempt. A second one follows it when it failed (a retry, after a pause where it failed for want
of room), or runs beside it when the hedger says so; then the first content wins, and whoever lost
is cancelled in the same callback.

Must never: write to the client (the exchange does), choose a replica, or leave a lease or a timer
behind: whatever ends a request ends in `cancel` or with the last attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from router.core.errors import Reason, RouterError
from router.dispatch.attempts import Attempt, Commit, Life, Step
from router.dispatch.continuation.outcome import Outcome
from router.dispatch.continuation.request import ENGINES
from router.dispatch.continuation.stream import Continuation
from router.dispatch.leg import Leg
from router.dispatch.retry import UNSENT
from router.dispatch.sending import send
from router.fleet.replica import Replica
from router.observe.events import log_event
from router.wire.replica import ReplicaConnection
from router.wire.response_reader import COMPLETE, ResponseReader
from router.wire.sweep import NEVER

if TYPE_CHECKING:
    from router.dispatch.dispatcher import Dispatcher
    from router.dispatch.exchange import Exchange

# How a stream breaks that another replica may go on with, and how it may fail to.
_BREAKS: Final = frozenset(
    {
        Reason.REPLICA_RESET,
        Reason.BAD_RESPONSE,
        Reason.TOKEN_GAP_TIMEOUT,
        Reason.STREAM_ERROR,
        Reason.EMPTY_STREAM,
        Reason.SERVER_ERROR,
        Reason.REPLICA_BUSY,
        Reason.CONNECT_FAILED,
        Reason.CONNECT_TIMEOUT,
    }
)


class Race:
    """The attempts of one request. Times are monotonic seconds."""

    __slots__ = (
        "_alarm",
        "_budgeted",
        "_cause",
        "_d",
        "_x",
        "aside_replica",
        "aside_said",
        "legs",
        "life",
        "untold",
    )
    __deletable__ = ("_x",)  # for the compiler

    def __init__(self, exchange: Exchange, dispatcher: Dispatcher) -> None:
        self._x = exchange
        self._d = dispatcher
        self.life = Life(dispatcher.config.retry.attempts)
        self.legs: list[Leg] = []  # alive
        self._budgeted = False  # one retry of the budget is ours
        self._alarm: asyncio.TimerHandle | None = None  # until a hedge, or until a retry
        self._cause = Reason.OK  # of the retry that the alarm is for
        self.untold: Replica | None = None  # it seems to know no priority, and is told none
        # What the attempt said that was put aside, and who said it.
        self.aside_said: ResponseReader | None = None
        self.aside_replica: Replica | None = None

    # -- beginning ----------------------------------------------------------------------------

    def begin(self, replica: Replica, *, fresh: bool = False) -> None:
        """Send the request to a replica (`fresh`: over a new connection)."""
        self.go(self.prepare(replica), fresh=fresh)

    def prepare(self, replica: Replica) -> Leg:
        """The same in two steps, of which this one takes the lease and does nothing else."""
        return self._enter(replica, monotonic(), False)

    def go(self, leg: Leg, *, fresh: bool = False) -> None:
        """Send what was prepared, if its request has not ended meanwhile."""
        if leg not in self.legs:
            return
        attempt, replica = leg.attempt, leg.replica
        due = NEVER
        x = self._x
        route = x.route
        if not attempt.index and route.inference and route.is_known and not route.light:
            due = self._d.hedger.dispatched(
                x.view,
                attempt,
                replica,
                x.hedges_as,
                bool(x.hedges_as),
                bool(x.fields.stream),
                attempt.began,
            )
        # A stale connection would be found out by what cannot be sent again.
        leg.start(fresh or not route.is_known)
        if due != NEVER:
            self._await_hedge(due, attempt.began)

    def _enter(self, replica: Replica, now: float, hedge: bool, continues: bool = False) -> Leg:
        """Another attempt: its lease is taken, its prefix is promised."""
        x = self._x
        streamed = bool(x.fields.stream)
        tokens, held = self._d.chooser.dispatched(x.view, replica)
        attempt = self.life.begin(
            replica.id,
            replica,
            now,
            tokens,
            held,
            streamed,
            hedge=hedge,
            continues=continues,
            light=x.route.light,
        )
        x.view.attempts = attempt.index + 1
        line = self._d.line
        if line is not None:
            line.sent(x, replica, now, is_extra=hedge or continues)
        leg = Leg(x, self, attempt, replica)
        if streamed:
            leg.is_alone = replica.waiting <= 1
            leg.overdue_due = now + replica.patience_s(replica.pending_tokens)
        if x.timeouts is not self._d.timeouts:
            leg.connect_due = now + x.timeouts.connect_s  # its class is in more of a hurry
        x.deadline = min(x.deadline, leg.overdue_due, leg.connect_due)
        self.legs.append(leg)
        return leg

    @property
    def is_sending(self) -> bool:
        """Whether the body, or a part of it, still waits to be read by a replica."""
        return any(leg.conn is not None and leg.conn.is_sending for leg in self.legs)

    def send(self, leg: Leg, conn: ReplicaConnection) -> None:
        """A leg has its connection."""
        leg.conn = conn
        leg.connect_due = NEVER
        self.life.sent(leg.attempt)
        x = self._x
        x.unreached_since = 0.0
        send(x, leg, conn)
        if x.body_bytes > x.limits.retry_body or not x.route.is_known:
            x.release_body()  # too large to keep, or nobody knows what a second time would do

    # -- hedging ------------------------------------------------------------------------------

    def _await_hedge(self, due: float, now: float) -> None:
        if due <= now:
            self._hedge()
        else:
            self._alarm = self._d.loop.call_later(due - now, self._hedge)

    def _hedge(self) -> None:
        """Nothing has come so far. Shall another replica be asked as well?"""
        self._alarm = None
        if len(self.legs) != 1 or not self._can_send_again():
            return
        x, d = self._x, self._d
        leg = self.legs[0]
        now = monotonic()
        # Not `_others`, which copies a list: of a large fleet the hedger looks at a few only.
        pool = d.fleet.serving(x.view.model)
        others = d.hedger.backup(x.view, leg.attempt, leg.replica, x.hedges_as, pool, now)
        if not others:
            again = d.hedger.again(leg.attempt, now)
            if again != NEVER:
                self._alarm = d.loop.call_later(again - now, self._hedge)
            return
        replica = d.chooser.choose(x.view, others)
        hedge = self._enter(replica, now, True)
        d.hedger.sent(x.view, hedge.attempt, replica, now)
        hedge.start(False)

    def won(self, leg: Leg, now: float) -> None:
        """A leg has shown content first: the others are cancelled, at their engines too."""
        self._quiet()
        if len(self.legs) == 1:
            return
        x, d = self._x, self._d
        losers = [other for other in self.legs if other is not leg]
        self.legs = [leg]
        for other in losers:
            other.cancel()
        self.life.outrun(now)
        for other in losers:
            attempt = other.attempt
            self._forget_prefix(other)
            d.hedger.outrun(x.view, attempt, leg.attempt, other.replica, bool(x.fields.stream), now)
            d.fleet.released(other.replica, attempt.began)

    def is_contested(self, leg: Leg) -> bool:
        """Whether another attempt may still answer better."""
        return len(self.legs) > 1 and leg in self.legs

    def holds_errors(self) -> bool:
        """Whether an error is not for the client at once: another attempt lives, or failed before
        and has the first word."""
        return len(self.legs) > 1 or self.life.put_aside is not None

    def put_aside(self, leg: Leg, reason: Reason) -> None:
        """A leg has an error to tell. The earliest one's is told when all have failed."""
        conn, leg.conn = leg.conn, None
        assert conn is not None
        reader = conn.reader
        if reader.state == COMPLETE:
            conn.release()
        else:
            conn.cancel()
            head = reader.head
            assert head is not None
            reader.head = head.__copy__()  # others share it
            reader.head.content_length = None
            reader.state = COMPLETE  # what came is all that there will be
        now = monotonic()
        self.legs.remove(leg)
        self._forget_prefix(leg)
        began = leg.attempt.began
        self._blame(leg, reason, began)
        if self.life.aside(leg.attempt, reason, now):
            self.aside_said, self.aside_replica = reader, leg.replica
        self._d.hedger.failed(self._x.view, leg.attempt, leg.replica, now)
        self._d.fleet.released(leg.replica, began)
        if not self.legs:
            self._x.tell_aside()

    # -- failing ------------------------------------------------------------------------------

    def refused(self, leg: Leg, retry_after: bytes | None) -> None:
        """A replica answers that it is busy: it is spared for a while, whoever else is asked."""
        self._d.fleet.busy(leg.replica, retry_after, monotonic())

    def replace(self, leg: Leg, reason: Reason) -> bool:
        """A replica answers that it is busy or has failed, and no content is out yet.

        True: another one is tried; False: the answer stands and is passed on.
        """
        life = self.life
        if not self._can_send_again() or life.reached >= life.most:
            return False
        if reason is Reason.STREAM_ERROR and (life.lost or not self._x.route.repeatable):
            return False
        if not self._others() or not self._take_budget():
            return False
        conn, leg.conn = leg.conn, None
        if conn is not None:
            conn.cancel()
        self._end_attempt(leg, reason, reused=False, received=True)
        self._retry(reason)
        return True

    def ask_without_priority(self, leg: Leg) -> bool:
        """A replica seems to know no priority. True: this request goes to it once more, without;
        False: its answer stands."""
        replica = leg.replica
        if self.is_contested(leg) or not self._can_send_here(replica):
            return False
        self.untold = replica
        leg.finish()
        self._end_attempt(leg, Reason.REPLICA_REFUSED, reused=False, received=True)
        self._d.metrics.retries(Reason.REPLICA_REFUSED)
        self.begin(replica)
        return True

    def went_without_priority(self, replica: Replica) -> None:
        """It takes the same request without: that was it."""
        self.untold = None
        replica.refuses_priority = True
        self._d.metrics.priority_refused += 1
        log_event(
            logging.WARNING,
            "a replica knows no priority",
            key=f"no priority {replica.id}",
            replica=replica.id,
        )

    def _can_send_here(self, replica: Replica) -> bool:
        return self._x.body is not None and not replica.removed and not self._d.closing

    def failed(self, leg: Leg, reason: Reason, *, reused: bool, received: bool) -> None:
        """A leg ended without a whole response."""
        if leg not in self.legs:
            return
        step = self._end_attempt(leg, reason, reused=reused, received=received)
        x, d = self._x, self._d
        if step == Step.NOTHING:
            return
        if step == Step.TRUNCATE:
            if not self._continue(leg, reason):
                winner = self.life.winner
                x.truncate(reason if winner is None else winner.reason)
            return
        if step == Step.ASIDE:
            x.tell_aside()
            return
        if step == Step.HERE and x.body is not None and not leg.replica.removed:
            d.metrics.connections_stale += 1
            d.metrics.retries(reason)
            self.begin(leg.replica, fresh=True)
            return
        if step in (Step.HERE, Step.ELSEWHERE, Step.BUDGET) and self._can_send_again():
            others = self._others()
            if others and (step != Step.BUDGET or self._take_budget()):
                if step == Step.BUDGET:
                    self._retry(reason)
                else:
                    self._go_on(others, reason)
                return
        if reason in UNSENT and x.wait_again(leg.replica):
            d.metrics.retries(reason)
            return
        is_last = step is Step.ELSEWHERE and self._can_send_again() and not self._others()
        if is_last and self._wait_for_probe(self.life.blame):
            return
        x.answer_failure(self.life.blame)

    def _end_attempt(self, leg: Leg, reason: Reason, *, reused: bool, received: bool) -> Step:
        d = self._d
        replica, attempt = leg.replica, leg.attempt
        self.legs.remove(leg)
        if not self.legs:
            self._quiet()
        shows_nothing = self.life.winner is not attempt
        self._forget_prefix(leg)
        began = attempt.began
        shown = began if shows_nothing else self._x.said_at()
        self._blame(leg, reason, shown)
        now = monotonic()
        step = self.life.failed(
            attempt,
            reason,
            now,
            reused=reused,
            received=received,
            repeatable=self._x.route.repeatable,
            known_dead=replica.health.known_dead,
        )
        if shows_nothing:
            d.hedger.failed(self._x.view, attempt, replica, now)
        d.fleet.released(replica, began)
        return step

    def _forget_prefix(self, leg: Leg) -> None:
        """An attempt ends. If it showed nothing, the replica holds nothing of it for sure.

        The end of the one that answered is the ledger's to tell, with its tokens.
        """
        if self.life.winner is not leg.attempt:
            chooser = self._d.chooser
            chooser.withdrawn(self._x.view, leg.replica, leg.attempt.held)
            chooser.finished(self._x.view, leg.replica, None)

    def _can_send_again(self) -> bool:
        return (
            self._x.body is not None
            and self._x.pinned is None
            and self.life.commit != Commit.CONTENT
            and not self._d.closing
        )

    def _others(self) -> Sequence[Replica]:
        # One that was preempted has failed nowhere.
        attempts = self.life.attempts
        tried = [a.at for a in attempts if a.reason is not Reason.PREEMPTED]
        try:
            return self._d.candidates(self._x, tried)
        except RouterError:
            return []

    def _take_budget(self) -> bool:
        if not self._budgeted:
            self._budgeted = self._d.budget.take()
            if not self._budgeted:
                self._d.metrics.retry_budget_exhausted += 1
        return self._budgeted

    def _retry(self, cause: Reason) -> None:
        """Ask another replica, after a pause: whoever fails for want of room fails in crowds."""
        self._cause = cause
        pause_s = self._d.backoff_s(len(self.life.attempts))
        if pause_s > 0.0:
            self._quiet()
            self._alarm = self._d.loop.call_later(pause_s, self._retry_now)
        else:
            self._retry_now()

    def _retry_now(self) -> None:
        self._alarm = None
        others = self._others() if self._can_send_again() else []
        if others:
            self._d.first_probes.forget(self._x)
            self._go_on(others, self._cause)
        elif not self._wait_for_probe(self._cause):
            self._x.answer_failure(self._cause)

    def _wait_for_probe(self, cause: Reason) -> bool:
        """No replica is left to ask. True: one may be after its first probe, which is awaited."""
        self._cause = cause
        late = partial(self._x.answer_failure, cause)
        return self._d.first_probes.hold(self._x, self._retry_now, late)

    def _go_on(self, others: Sequence[Replica], cause: Reason) -> None:
        self._d.metrics.retries(cause)
        self.begin(self._d.chooser.choose(self._x.view, others))

    # -- continuing ---------------------------------------------------------------------------

    def _continue(self, leg: Leg, reason: Reason) -> bool:
        """The client's stream broke with this leg. Another replica may go on, where that is on."""
        x, d = self._x, self._d
        stream = x.reply.continuation
        if stream is None or d.closing:
            return False
        has_begun = leg.attempt is self.life.winner  # else it is a continuation that failed
        if reason not in _BREAKS:
            if not has_begun:
                d.metrics.continuation(Outcome.FAILED)
            return False
        others = [replica for replica in self._others() if replica.engine in ENGINES]
        rest = self._rest(stream, bool(others))
        if isinstance(rest, Outcome):
            d.metrics.continuation(rest if has_begun else Outcome.FAILED)
            return False
        now = monotonic()
        replica = d.chooser.choose(x.view, others)
        following = self._enter(replica, now, False, True)
        following.rest = rest
        x.awaits_rest(now)
        following.start(True)
        return True

    def _rest(self, stream: Continuation, has_others: bool) -> list[bytes] | Outcome:
        """What to ask another replica; or why none is asked."""
        life = self.life
        # A request that kills replicas must not tour the fleet: two, never three.
        if life.continuations >= self._d.config.continuation.attempts or life.lost > 1:
            return Outcome.BUDGET
        rest = stream.rest(self._x.body or [])
        if isinstance(rest, Outcome):
            return rest
        if not has_others:
            return Outcome.NO_REPLICA
        return rest if self._take_budget() else Outcome.BUDGET

    # -- deadlines ----------------------------------------------------------------------------

    def due(self) -> float:
        """When a leg has to be looked at next."""
        due = NEVER
        for leg in self.legs:
            due = min(due, leg.overdue_due, leg.connect_due)
        return due

    def _blame(self, leg: Leg, reason: Reason, shown: float) -> None:
        """An attempt ended badly; `shown`: when it last showed content, or was dispatched."""
        self._d.fleet.failed(
            leg.replica,
            reason,
            leg.attempt.began,
            shown,
            was_overdue=leg.is_overdue,
            request_id=self._x.request_id,
        )

    def look(self, now: float) -> None:
        """See whether a leg's first token is overdue, or its connection too late for its class."""
        for leg in [*self.legs]:
            if leg.overdue_due <= now:
                leg.overdue_due = self._d.fleet.overdue(
                    leg.replica, leg.attempt.began, now, self._x.request_id
                )
                leg.is_overdue = leg.overdue_due == NEVER
            if leg.connect_due <= now:
                leg.connect_due = NEVER
                leg.cancel()
                self.failed(leg, Reason.CONNECT_TIMEOUT, reused=False, received=False)

    def timed_out(self, reason: Reason) -> None:
        """Whatever is under way has taken too long."""
        legs = [*self.legs]
        for leg in legs:
            leg.cancel()
        for leg in legs:
            self.failed(leg, reason, reused=False, received=True)
        if not legs:
            self._quiet()
            self._x.answer_failure(reason)

    # -- the end ------------------------------------------------------------------------------

    def completed(self, leg: Leg, reason: Reason, now: float) -> None:
        """The winner's response is whole: its connection may serve another."""
        self.life.completed(leg.attempt, now, reason)
        self.legs.clear()
        leg.finish()
        self._d.fleet.released(leg.replica, leg.attempt.began)

    def cancel(self, reason: Reason) -> None:
        """The request is over, whatever its attempts were about to do."""
        self._quiet()
        legs, self.legs = self.legs, []
        for leg in legs:
            leg.cancel()
            self._forget_prefix(leg)
        now = monotonic()
        winner: Attempt | None = self.life.winner
        self.life.end(reason, now)
        for leg in legs:
            if leg.attempt is not winner:
                self._d.hedger.failed(self._x.view, leg.attempt, leg.replica, now)
            self._d.fleet.released(leg.replica, leg.attempt.began)

    def recall(self, now: float) -> None:
        """The request gives way to a more urgent one: what is under way ends, and has shown
        nothing. It may begin again."""
        self._quiet()
        legs, self.legs = self.legs, []
        for leg in legs:
            leg.cancel()
        self.life.recalled(now)
        for leg in legs:
            self._forget_prefix(leg)
            self._d.hedger.failed(self._x.view, leg.attempt, leg.replica, now)
            self._d.fleet.released(leg.replica, leg.attempt.began)

    def close(self) -> None:
        """Give back what is not an attempt's."""
        self._quiet()
        self.aside_said = self.aside_replica = None
        if self._budgeted:
            self._budgeted = False
            self._d.budget.give()
        del self._x  # the two hold each other: nobody shall have to look for such circles

    def _quiet(self) -> None:
        """No hedge and no retry any more."""
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()
