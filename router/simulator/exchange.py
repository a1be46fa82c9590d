"""One request on its way through a simulated router: what `dispatch/exchange.py`, `race.py` and
`ledger.py` do around the fleet, the chooser, the hedger and the attempts, without bytes.

The state machine (`dispatch.attempts.Life`) says what an event means; here it is done. Whoever
changes what the real exchange tells those objects, or when, changes it here, too.

Must never: choose a replica, or judge whether something may be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from policies.queueing.ticket import Ticket
from router.core.errors import STATUS, Reason, RouterError
from router.dispatch.attempts import Attempt, Commit, Kind, Life, Step
from router.dispatch.retry import UNSENT
from router.emulator.request import Request
from router.fleet.replica import Replica
from router.intake.flow import Flow
from router.intake.routes import POSTS
from router.simulator.engine import SimulatedEngine
from router.simulator.outcome import Outcome
from router.simulator.traffic import Arrival

if TYPE_CHECKING:
    from router.simulator.line import SimulatedLine
    from router.simulator.router import SimulatedRouter

# Kinds of routes whose requests may be sent again after they may have been executed.
REPEATABLE: Final = frozenset(route.kind for route in POSTS.values() if route.repeatable)


class Leg(Request):
    """One attempt: what the engine runs, and where what it says goes."""

    __slots__ = (
        "attempt",
        "engine",
        "exchange",
        "is_alone",
        "is_overdue",
        "made",
        "overdue_due",
        "relayed",
        "replica",
        "streamed",
    )

    def __init__(
        self,
        id: str,
        exchange: SimulatedExchange,
        attempt: Attempt,
        replica: Replica,
        engine: SimulatedEngine,
        streamed: bool,
        priority: int,
    ) -> None:
        arrival = exchange.arrival
        super().__init__(
            id,
            arrival.prompt_tokens,
            arrival.output_tokens,
            arrival.blocks + arrival.answer_blocks if arrival.answer_blocks else arrival.blocks,
            priority,
        )
        self.exchange = exchange
        self.attempt = attempt
        self.replica = replica
        self.engine = engine
        self.streamed = streamed
        self.is_alone = False  # no other request waited at the replica when it was sent
        self.overdue_due = inf  # when the fleet is asked whether its first token is too late
        self.is_overdue = False  # it is, and that counts against the replica
        self.made = 0  # tokens it had when it was lost
        self.relayed = 0  # tokens of a stream that goes to the client, as far as they were counted

    def connected(self) -> None:
        """It is on its way in."""
        self.exchange.unreached_since = -1.0
        self.exchange.life.sent(self.attempt)

    # What the engine says, when it is heard.

    def shown(self, now: float) -> None:
        """The first token."""
        self.exchange.content(self, now)

    def finished(self, now: float) -> None:
        """The last one, or all of an answer that is not streamed."""
        self.exchange.completed(self, now)

    def refused(self, now: float) -> None:
        """It answers that it will not do this."""
        self.exchange.refused(self, now)

    def not_connected(self, now: float) -> None:
        self.exchange.failed(self, Reason.CONNECT_FAILED, now)

    def lost(self, now: float) -> None:
        """The connection dies."""
        self.exchange.failed(self, Reason.REPLICA_RESET, now)


class SimulatedExchange:
    """A request under way. Times are the clock's seconds."""

    __slots__ = (
        "_budgeted",
        "_cause",
        "_first_s",
        "_hedge_due",
        "_legs",
        "_retry_due",
        "_router",
        "_timer",
        "_wait_due",
        "_waits_since",
        "arrival",
        "flow",
        "life",
        "number",
        "outcome",
        "streamed",
        "ticket",
        "told",
        "unreached_since",
        "urgency",
        "view",
    )

    def __init__(
        self,
        router: SimulatedRouter,
        number: int,
        arrival: Arrival,
        flow: Flow,
        steps: int,
        now: float,
    ) -> None:
        self._router = router
        self.number = number  # among the router's
        self.arrival = arrival
        self.flow = flow
        self.outcome = Outcome(arrival, "", router.number, now)
        self.life = Life(router.most_attempts)
        self.view = router.view(arrival)
        # What generates nothing shows nothing before it is whole.
        self.streamed = arrival.stream and arrival.output_tokens > 0
        self.urgency = router.urgency(arrival, steps)
        self.told = router.told(self.urgency, arrival.at)  # its number at the engines
        self.ticket: Ticket | None = None  # in the queue, or of it
        self.unreached_since = -1.0  # no replica was connected to; below 0: one was, or none tried
        self._waits_since = now  # in the queue, while it does
        self._legs: list[Leg] = []  # that live: two while a copy races the first, else one
        self._budgeted = False  # one retry of the budget is ours
        # From its dispatch to its first content, which is the whole answer where it is no stream.
        self._first_s = router.first_token_s if arrival.stream else router.whole_s
        self._wait_due = now + self._first_s
        self._hedge_due = inf  # then the hedger is asked whether a second copy goes
        self._retry_due = inf  # then it is sent again ...
        self._cause = Reason.OK  # ... because of this
        self._timer = inf  # when the router looks at our deadlines

    # -- attempts -----------------------------------------------------------------------------

    def start(self, now: float) -> None:
        router = self._router
        line = router.line
        replica: Replica | None
        try:
            if line is not None:
                replica = line.enter(self, now)
                if replica is None:
                    return  # the line sends it when it is its turn
                self.outcome.queued_s = 0.0
            else:
                candidates = router.fleet.eligible(self.view.model)
                replica = router.chooser.choose(self.view, candidates)
        except RouterError as err:
            self._finish(err.reason, now)
            return
        self.begin(replica, now)

    def queued(self, now: float) -> None:
        """It waits for a replica: patience with one begins when it is sent there."""
        self._waits_since = now
        self._wait_due = inf

    def granted(self, now: float) -> None:
        """It has waited, and is about to be sent."""
        self._wait_due = now + self._first_s
        self.outcome.queued_s = max(0.0, self.outcome.queued_s) + now - self._waits_since

    def expired(self, reason: Reason, now: float) -> None:
        """It has waited too long."""
        self._finish(reason, now)

    def recall(self, now: float) -> None:
        """It gives way to a more urgent one: what is under way ends, and has shown nothing."""
        router = self._router
        self._hedge_due = self._retry_due = inf
        legs, self._legs = self._legs, []
        for leg in legs:
            leg.engine.cancel(leg)
        self.life.recalled(now)
        for leg in legs:
            self._forget_prefix(leg)
            router.hedger.failed(self.view, leg.attempt, leg.replica, now)
            router.fleet.released(leg.replica, leg.attempt.began)

    def begin(self, replica: Replica, now: float) -> None:
        self.go(self.prepare(replica, now), now)

    def go(self, leg: Leg, now: float) -> None:
        """Send what was prepared, if its request has not ended meanwhile."""
        if leg not in self._legs:
            return
        router, arrival = self._router, self.arrival
        if not leg.attempt.index:
            self._hedge_due = router.hedger.dispatched(
                self.view,
                leg.attempt,
                leg.replica,
                arrival.priority,
                arrival.kind in REPEATABLE,
                self.streamed,
                now,
            )
        leg.engine.send(leg)
        if self._hedge_due <= now:
            self._hedge(now)
        elif self._hedge_due < inf:
            self._set_timer(self._hedge_due)

    def prepare(self, replica: Replica, now: float, *, hedge: bool = False) -> Leg:
        """Another attempt: its lease is taken, its prefix is promised, and nothing else happens."""
        router, view = self._router, self.view
        tokens, held = router.chooser.dispatched(view, replica)
        attempt = self.life.begin(
            replica.id, replica, now, tokens, held, self.streamed, hedge=hedge
        )
        view.attempts = attempt.index + 1
        if router.line is not None:
            router.line.sent(self, replica, now, is_extra=hedge)
        engine = router.engines[replica]
        leg = Leg(
            f"{router.number}.{self.number}.{attempt.index}",
            self,
            attempt,
            replica,
            engine,
            self.streamed,
            self.told,
        )
        if self.streamed:
            leg.is_alone = replica.waiting <= 1
            leg.overdue_due = now + replica.patience_s(replica.pending_tokens)
        self._legs.append(leg)
        self._tell_of(leg)
        self._set_timer(min(self._wait_due, leg.overdue_due))
        return leg

    def _hedge(self, now: float) -> None:
        """A second copy, if the hedger has it so."""
        self._hedge_due = inf
        router, view = self._router, self.view
        (first,) = self._legs
        pool = router.fleet.serving(view.model)
        others = router.hedger.backup(
            view, first.attempt, first.replica, self.arrival.priority, pool, now
        )
        if others:
            leg = self.prepare(router.chooser.choose(view, others), now, hedge=True)
            router.hedger.sent(view, leg.attempt, leg.replica, now)
            leg.engine.send(leg)
        else:
            self._hedge_due = router.hedger.again(first.attempt, now)
            self._set_timer(self._hedge_due)

    def _tell_of(self, leg: Leg) -> None:
        """The outcome is about this attempt, as long as there is no better one."""
        outcome, attempt = self.outcome, leg.attempt
        outcome.replica = attempt.replica_id
        outcome.dispatched = attempt.began
        outcome.expected_tokens = int(attempt.held * self.view.block_tokens)

    def failed(self, leg: Leg, reason: Reason, now: float) -> None:
        """An attempt ended without a whole response."""
        if leg not in self._legs:
            return
        router = self._router
        step = self._end_attempt(leg, reason, now)
        if step == Step.NOTHING:
            return  # the other copy goes on
        if step == Step.TRUNCATE:
            self._finish(reason, now, leg)  # what was shown of it is the answer
            return
        if step == Step.ASIDE:
            self._tell_aside(now)
            return
        if step in (Step.ELSEWHERE, Step.BUDGET):
            others = self._others()
            if others and (step != Step.BUDGET or self._take_budget()):
                if step == Step.BUDGET:
                    self._retry(reason, now)
                else:
                    self._go_on(others, reason, now)
                return
        line = router.line
        if reason in UNSENT and line is not None and line.wait_again(self, leg.replica, now):
            router.metrics.retries(reason)
            return
        self._finish(self.life.blame, now)

    def _end_attempt(self, leg: Leg, reason: Reason, now: float) -> Step:
        router, replica, attempt = self._router, leg.replica, leg.attempt
        self._legs.remove(leg)
        if not self._legs:
            self._hedge_due = inf
        shows_nothing = self.life.winner is not attempt
        if shows_nothing:
            self._forget_prefix(leg)
        began = attempt.began
        shown = began if shows_nothing else self._said_at(leg, now)
        self._shows_work(leg, now)
        router.fleet.failed(replica, reason, began, shown, was_overdue=leg.is_overdue)
        # Connections are never stale here, and vLLM sends its head at once.
        step = self.life.failed(
            attempt,
            reason,
            now,
            reused=False,
            received=True,
            repeatable=self.arrival.kind in REPEATABLE,
            known_dead=replica.health.known_dead,
        )
        if shows_nothing:
            router.hedger.failed(self.view, attempt, replica, now)
        router.fleet.released(replica, began)
        return step

    def _retry(self, cause: Reason, now: float) -> None:
        """Ask another replica, after a pause."""
        pause_s = self._router.backoff_s(len(self.life.attempts))
        self._cause = cause
        self._retry_due = now + pause_s
        if pause_s > 0.0:
            self._set_timer(self._retry_due)
        else:
            self._retry_now(now)

    def _retry_now(self, now: float) -> None:
        self._retry_due = inf
        others = self._others()
        if others:
            self._go_on(others, self._cause, now)
        else:
            self._finish(self._cause, now)

    def _go_on(self, others: Sequence[Replica], cause: Reason, now: float) -> None:
        self._router.metrics.retries(cause)
        self.begin(self._router.chooser.choose(self.view, others), now)

    def _forget_prefix(self, leg: Leg) -> None:
        chooser = self._router.chooser
        chooser.withdrawn(self.view, leg.replica, leg.attempt.held)
        chooser.finished(self.view, leg.replica, None)

    def _others(self) -> Sequence[Replica]:
        # One that was preempted has failed nowhere.
        attempts = self.life.attempts
        tried = [a.at for a in attempts if a.reason is not Reason.PREEMPTED]
        try:
            return self._router.fleet.eligible(self.view.model, tried)
        except RouterError:
            return []

    def _take_budget(self) -> bool:
        if not self._budgeted:
            self._budgeted = self._router.budget.take()
            if not self._budgeted:
                self._router.metrics.retry_budget_exhausted += 1
        return self._budgeted

    # -- what comes back ----------------------------------------------------------------------

    def content(self, leg: Leg, now: float) -> None:
        """An attempt shows its first token."""
        if leg not in self._legs or not self.life.content(leg.attempt):
            return
        router, attempt, replica = self._router, leg.attempt, leg.replica
        self._won(leg, now)
        self.outcome.first = now
        self._set_timer(now + router.token_gap_s)
        ttft_s = now - attempt.began if self.streamed else None
        if self.streamed:
            replica.cadence.begins(now)
            leg.relayed = 1
        router.fleet.showed_content(
            replica, now, attempt.began, ttft_s, attempt.tokens, leg.is_alone
        )
        router.chooser.shown(self.view, replica, attempt.held, ttft_s)
        router.hedger.shown(self.view, attempt, replica, self.streamed, now)

    def _won(self, leg: Leg, now: float) -> None:
        """It was the first: all others are cancelled, at their engines too."""
        self._tell_of(leg)
        self._hedge_due = leg.overdue_due = inf
        if len(self._legs) > 1:
            self._outrun(leg, now)
        line, ticket = self._router.line, self.ticket
        if line is not None and ticket is not None:
            line.pools.shown(ticket, leg.replica, now)

    def _outrun(self, leg: Leg, now: float) -> None:
        router = self._router
        losers = [other for other in self._legs if other is not leg]
        self._legs = [leg]
        for other in losers:
            other.engine.cancel(other)
        self.life.outrun(now)
        for other in losers:
            attempt = other.attempt
            self._forget_prefix(other)
            router.hedger.outrun(self.view, attempt, leg.attempt, other.replica, self.streamed, now)
            router.fleet.released(other.replica, attempt.began)
            self.outcome.wasted_tokens += attempt.tokens

    def completed(self, leg: Leg, now: float) -> None:
        """The answer is whole."""
        if leg not in self._legs:
            return
        if self.life.winner is None:
            self.content(leg, now)
        self._end(leg, Reason.OK, now)
        self._router.fleet.succeeded(leg.replica, leg.attempt.began)
        self._finish(Reason.OK, now, leg)

    def _end(self, leg: Leg, reason: Reason, now: float) -> None:
        """The winner's response is whole."""
        self.life.completed(leg.attempt, now, reason)
        self._legs.clear()
        self._router.fleet.released(leg.replica, leg.attempt.began)

    def refused(self, leg: Leg, now: float) -> None:
        """The engine answers with a 4xx: it is passed on, and nothing was prefilled. While another
        copy lives, or where an earlier refusal has the first word, it is put aside."""
        if leg not in self._legs:
            return
        router, life, attempt, replica = self._router, self.life, leg.attempt, leg.replica
        reason = Reason.REPLICA_REFUSED
        if len(self._legs) > 1 or life.put_aside is not None:
            self._legs.remove(leg)
            self._forget_prefix(leg)
            began = attempt.began
            router.fleet.failed(replica, reason, began, began, was_overdue=leg.is_overdue)
            life.aside(attempt, reason, now)
            router.hedger.failed(self.view, attempt, replica, now)
            router.fleet.released(replica, began)
            if not self._legs:
                self._tell_aside(now)
            return
        life.content(attempt)
        self._won(leg, now)
        router.chooser.withdrawn(self.view, replica, attempt.held)
        router.hedger.failed(self.view, attempt, replica, now)
        self._end(leg, reason, now)
        self._finish(reason, now, leg)

    def _tell_aside(self, now: float) -> None:
        """All others have failed: what the earliest refusal said is the answer."""
        self.life.told()
        winner = self.life.winner
        assert winner is not None
        self.outcome.replica = winner.replica_id
        self._finish(winner.reason, now)

    # -- deadlines ----------------------------------------------------------------------------

    def _set_timer(self, due: float) -> None:
        if due < self._timer:
            self._timer = due
            self._router.call_at(due, self.number)

    def on_deadline(self, now: float) -> None:
        """The timer is here: a first token is overdue or too late, a copy is due, or there are no
        more tokens."""
        if now != self._timer:
            return  # it was set to another time
        self._timer = inf
        if self.life.commit == Commit.CONTENT:
            (leg,) = self._legs
            due = self._gap_due(leg, now)
            if due <= now:
                self._times_out(leg, Reason.TOKEN_GAP_TIMEOUT, now)
            else:
                self._set_timer(due)
        elif self._wait_due <= now:
            reason = Reason.TTFT_TIMEOUT if self.arrival.stream else Reason.WHOLE_TIMEOUT
            if not self._legs:  # it was about to be sent again
                self._finish(reason, now)
            for leg in [*self._legs]:
                self._times_out(leg, reason, now)
        else:
            for leg in self._legs:
                if leg.overdue_due <= now:
                    self._shows_work(leg, now)
                    began = leg.attempt.began
                    leg.overdue_due = self._router.fleet.overdue(leg.replica, began, now)
                    leg.is_overdue = leg.overdue_due == inf
            if self._hedge_due <= now:
                self._hedge(now)
            if self._retry_due <= now:
                self._retry_now(now)
            dues = [leg.overdue_due for leg in self._legs]
            self._set_timer(min(self._wait_due, self._hedge_due, self._retry_due, *dues))

    def _gap_due(self, leg: Leg, now: float) -> float:
        """When the pause since the last token will have been too long, if none comes.

        Single tokens are no events here. They come at every step, and steps only stop where an
        engine is frozen.
        """
        return self._said_at(leg, now) + self._router.token_gap_s

    def _said_at(self, leg: Leg, now: float) -> float:
        """When the last token of an answer came."""
        since = leg.engine.frozen_since
        return now if since is None else max(since, self.outcome.first)

    def _shows_work(self, leg: Leg, now: float) -> None:
        """What single tokens of other streams have shown of the attempt's replica, up to now."""
        replica, since = leg.replica, leg.engine.frozen_since
        own_waiting = replica.waiting - replica.foreign_waiting
        if replica.inflight > own_waiting:
            shown = now if since is None else since
            replica.progress.at = max(replica.progress.at, shown)

    def _times_out(self, leg: Leg, reason: Reason, now: float) -> None:
        leg.made = leg.engine.generated(leg)
        leg.engine.cancel(leg)
        self.failed(leg, reason, now)

    # -- the end ------------------------------------------------------------------------------

    def _finish(self, reason: Reason, now: float, answered: Leg | None = None) -> None:
        """`answered`: the attempt whose answer, or a part of it, went to the client."""
        router, outcome, arrival, life = self._router, self.outcome, self.arrival, self.life
        if answered is None and not life.over:
            life.end(reason, now)
        if self._budgeted:
            router.budget.give()
        if router.line is not None:
            self._leave(router.line, reason, now, answered)
        if answered is not None and answered.relayed:
            made = arrival.output_tokens if reason is Reason.OK else answered.made
            cadence = answered.replica.cadence
            cadence.events += max(0, made - answered.relayed)
            cadence.ends(now)
        metrics = router.metrics
        outcome.ended = now
        outcome.reason = reason
        outcome.attempts = len(life.attempts)
        if outcome.attempts > 1:
            outcome.hedged = any(one.kind is Kind.HEDGE for one in life.attempts)
            winner = life.winner
            shown = outcome.first >= 0.0
            outcome.hedge_won = shown and winner is not None and winner.kind is Kind.HEDGE
        ttft_s = outcome.first - arrival.at if outcome.first >= 0.0 else None
        model = arrival.model
        metrics.finished(
            arrival.kind, reason, STATUS[reason], now - arrival.at, ttft_s, 0, 0, model
        )
        if answered is not None:
            output: int | None = answered.made or None
            if reason is Reason.OK:
                if answered.attempt.held:
                    answered.replica.should_have_hit(answered.attempt.began)
                output = arrival.output_tokens
                outcome.cached_tokens = cached = answered.cached_tokens
                metrics.counted_tokens(model, arrival.prompt_tokens, output, cached)
            if self.streamed and output is not None and output > 1:
                answered.replica.paced((now - outcome.first) / (output - 1))
            router.chooser.finished(self.view, answered.replica, output)
        for attempt in life.attempts:
            metrics.attempt(attempt.replica_id, attempt.kind, attempt.reason)
        router.ended(self)

    def _leave(self, line: SimulatedLine, reason: Reason, now: float, answered: Leg | None) -> None:
        """The queue hears what the request really cost, as far as its engine told."""
        tokens, output, replica = -1, 0, None
        if answered is not None:
            replica, output = answered.replica, answered.made
            if reason is Reason.OK:
                output = self.arrival.output_tokens
                tokens = max(0, self.arrival.prompt_tokens - answered.cached_tokens)
        line.over(self, reason, replica, tokens, output, now)
