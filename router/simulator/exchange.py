"""One request on its way through a simulated router: what `dispatch/exchange.py` and
`dispatch/ledger.py` do around the fleet, the chooser and the attempts, without bytes.

The state machine (`dispatch.attempts.Life`) says what an event means; here it is done. Whoever
changes what the real exchange tells those objects, or when, changes it here, too.

Must never: choose a replica, or judge whether something may be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from router.core.errors import STATUS, Reason, RouterError
from router.dispatch.attempts import Attempt, Commit, Life, Step
from router.emulator.request import Request
from router.fleet.replica import Replica
from router.intake.routes import POSTS
from router.simulator.engine import SimulatedEngine
from router.simulator.outcome import Outcome
from router.simulator.traffic import Arrival

if TYPE_CHECKING:
    from router.simulator.router import SimulatedRouter

# Kinds of routes whose requests may be sent again after they may have been executed.
REPEATABLE: Final = frozenset(route.kind for route in POSTS.values() if route.repeatable)


class Leg(Request):
    """One attempt: what the engine runs, and where what it says goes."""

    __slots__ = ("attempt", "engine", "exchange", "is_overdue", "made", "replica", "streamed")

    def __init__(
        self,
        id: str,
        exchange: SimulatedExchange,
        attempt: Attempt,
        replica: Replica,
        engine: SimulatedEngine,
        streamed: bool,
    ) -> None:
        arrival = exchange.arrival
        super().__init__(
            id,
            arrival.prompt_tokens,
            arrival.output_tokens,
            arrival.blocks + arrival.answer_blocks if arrival.answer_blocks else arrival.blocks,
        )
        self.exchange = exchange
        self.attempt = attempt
        self.replica = replica
        self.engine = engine
        self.streamed = streamed
        self.is_overdue = False  # its first token is, and the fleet was told
        self.made = 0  # tokens it had when it was lost

    def connected(self) -> None:
        """It is on its way in."""
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
        "_leg",
        "_overdue_due",
        "_router",
        "_streamed",
        "_timer",
        "_wait_due",
        "arrival",
        "life",
        "number",
        "outcome",
        "view",
    )

    def __init__(self, router: SimulatedRouter, number: int, arrival: Arrival, now: float) -> None:
        self._router = router
        self.number = number  # among the router's
        self.arrival = arrival
        self.outcome = Outcome(arrival, "", router.number, now)
        self.life = Life(router.most_attempts)
        self.view = router.view(arrival)
        # What generates nothing shows nothing before it is whole.
        self._streamed = arrival.stream and arrival.output_tokens > 0
        self._leg: Leg | None = None
        self._budgeted = False  # one retry of the budget is ours
        self._wait_due = now + router.first_token_s
        self._overdue_due = inf
        self._timer = inf  # when the router looks at our deadlines

    # -- attempts -----------------------------------------------------------------------------

    def start(self, now: float) -> None:
        router = self._router
        try:
            candidates = router.fleet.eligible(self.view.model)
        except RouterError as err:
            self._finish(err.reason, now)
            return
        self._begin(router.chooser.choose(self.view, candidates), now)

    def _begin(self, replica: Replica, now: float) -> None:
        router, view, outcome = self._router, self.view, self.outcome
        tokens, held = router.chooser.dispatched(view, replica)
        attempt = self.life.begin(replica.id, replica, now, tokens, held, self._streamed)
        view.attempts = attempt.index + 1
        outcome.replica = replica.id
        outcome.dispatched = now
        outcome.expected_tokens = int(held * view.block_tokens)
        self._overdue_due = now + replica.patience_s(tokens) if self._streamed else inf
        self._set_timer(min(self._wait_due, self._overdue_due))
        engine = router.engines[replica]
        self._leg = leg = Leg(
            f"{router.number}.{self.number}.{attempt.index}",
            self,
            attempt,
            replica,
            engine,
            self._streamed,
        )
        engine.send(leg)

    def failed(self, leg: Leg, reason: Reason, now: float) -> None:
        """An attempt ended without a whole response."""
        if leg is not self._leg:
            return
        self._leg = None
        if self.life.winner is not leg.attempt:
            self._forget_prefix(leg)
        router, replica = self._router, leg.replica
        router.fleet.failed(replica, reason, was_overdue=leg.is_overdue)
        # Connections are never stale here, and vLLM sends its head at once.
        step = self.life.failed(
            leg.attempt,
            reason,
            now,
            reused=False,
            received=True,
            repeatable=self.arrival.kind in REPEATABLE,
            known_dead=replica.health.known_dead,
        )
        router.fleet.released(replica)
        if step == Step.TRUNCATE:
            self._finish(reason, now, leg)  # what was shown of it is the answer
            return
        if step in (Step.ELSEWHERE, Step.BUDGET):
            others = self._others()
            if others and (step != Step.BUDGET or self._take_budget()):
                router.metrics.retries(reason)
                self._begin(router.chooser.choose(self.view, others), now)
                return
        self._finish(reason, now)

    def _forget_prefix(self, leg: Leg) -> None:
        chooser = self._router.chooser
        chooser.withdrawn(self.view, leg.replica, leg.attempt.held)
        chooser.finished(self.view, leg.replica, None)

    def _others(self) -> Sequence[Replica]:
        tried = [attempt.at for attempt in self.life.attempts]
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
        if leg is not self._leg or not self.life.content(leg.attempt):
            return
        router, attempt, replica = self._router, leg.attempt, leg.replica
        self.outcome.first = now
        self._overdue_due = inf
        self._set_timer(now + router.token_gap_s)
        ttft_s = now - attempt.began if self._streamed else None
        router.fleet.showed_content(replica, now, attempt.began, ttft_s, attempt.tokens)
        router.chooser.shown(self.view, replica, attempt.held, ttft_s)

    def completed(self, leg: Leg, now: float) -> None:
        """The answer is whole."""
        if leg is not self._leg:
            return
        if self.life.winner is None:
            self.content(leg, now)
        self._leg = None
        self.life.completed(leg.attempt, now, Reason.OK)
        fleet = self._router.fleet
        fleet.succeeded(leg.replica, leg.attempt.began)
        self._finish(Reason.OK, now, leg)

    def refused(self, leg: Leg, now: float) -> None:
        """The engine answers with a 4xx: it is passed on, and nothing was prefilled."""
        if leg is not self._leg:
            return
        self._leg = None
        chooser = self._router.chooser
        self.life.content(leg.attempt)
        chooser.withdrawn(self.view, leg.replica, leg.attempt.held)
        self.life.completed(leg.attempt, now, Reason.REPLICA_REFUSED)
        self._finish(Reason.REPLICA_REFUSED, now, leg)

    # -- deadlines ----------------------------------------------------------------------------

    def _set_timer(self, due: float) -> None:
        if due < self._timer:
            self._timer = due
            self._router.call_at(due, self.number)

    def on_deadline(self, now: float) -> None:
        """The timer is here: the first token is overdue or too late, or there are no more."""
        if now != self._timer:
            return  # it was set to another time
        self._timer = inf
        leg = self._leg
        assert leg is not None, "a request under way has an attempt"
        if self.life.commit == Commit.CONTENT:
            due = self._gap_due(leg, now)
            if due <= now:
                self._times_out(leg, Reason.TOKEN_GAP_TIMEOUT, now)
            else:
                self._set_timer(due)
        elif self._wait_due <= now:
            self._times_out(leg, Reason.TTFT_TIMEOUT, now)
        else:
            if self._overdue_due <= now:
                self._overdue_due = inf
                leg.is_overdue = True
                self._router.fleet.overdue(leg.replica, now)
            self._set_timer(min(self._wait_due, self._overdue_due))

    def _gap_due(self, leg: Leg, now: float) -> float:
        """When the pause since the last token will have been too long, if none comes.

        Single tokens are no events here. They come at every step, and steps only stop where an
        engine is frozen.
        """
        since = leg.engine.frozen_since
        last = now if since is None else max(since, self.outcome.first)
        return last + self._router.token_gap_s

    def _times_out(self, leg: Leg, reason: Reason, now: float) -> None:
        leg.made = leg.engine.generated(leg)
        leg.engine.cancel(leg)
        self.failed(leg, reason, now)

    # -- the end ------------------------------------------------------------------------------

    def _finish(self, reason: Reason, now: float, answered: Leg | None = None) -> None:
        """`answered`: the attempt whose answer, or a part of it, went to the client."""
        router, outcome, arrival, life = self._router, self.outcome, self.arrival, self.life
        if answered is None:
            life.end(reason, now)
        if self._budgeted:
            router.budget.give()
        metrics = router.metrics
        outcome.ended = now
        outcome.reason = reason
        outcome.attempts = len(life.attempts)
        ttft_s = outcome.first - arrival.at if outcome.first >= 0.0 else None
        model = arrival.model
        metrics.finished(
            arrival.kind, reason, STATUS[reason], now - arrival.at, ttft_s, 0, 0, model
        )
        if answered is not None:
            output: int | None = answered.made or None
            if reason is Reason.OK:
                output = arrival.output_tokens
                outcome.cached_tokens = cached = answered.cached_tokens
                metrics.counted_tokens(model, arrival.prompt_tokens, output, cached)
            if self._streamed and output is not None and output > 1:
                answered.replica.paced((now - outcome.first) / (output - 1))
            router.chooser.finished(self.view, answered.replica, output)
        for attempt in life.attempts:
            metrics.attempt(attempt.replica_id, attempt.kind, attempt.reason)
        router.ended(self)
