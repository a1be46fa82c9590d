"""One request on its way through a simulated router: the driver's port over engine cores.

The request driver (`dispatch/request_driver.py`) and the queue driver decide, as in the proxy. Here
is what the proxy does with bytes: attempts run on engine cores, deadlines are events of the virtual
clock, and the end of a request becomes an `Outcome`.

Must never: choose a replica, or judge whether something may be sent again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import partial
from math import inf
from typing import Final, cast

from mypy_extensions import mypyc_attr

from policies.facts import RequestView
from policies.queueing.ticket import Ticket
from router.core.errors import STATUS, Reason, RouterError
from router.core.urgency import Urgency
from router.dispatch.attempts import Attempt, Commit, Kind
from router.dispatch.context import Context
from router.dispatch.driven_request import DrivenRequest
from router.dispatch.queue_driver import QueueDriver
from router.dispatch.request_driver import RequestDriver
from router.fleet.replica import Replica
from router.intake.flow import Flow
from router.intake.routes import JSON, KINDS, POSTS, Route
from router.simulator.engine import EngineAttempt, SimulatedEngine
from router.simulator.outcome import Outcome
from router.simulator.traffic import Arrival

# Kinds of routes whose requests may be sent again after they may have been executed.
REPEATABLE: Final = frozenset(route.kind for route in POSTS.values() if route.repeatable)
# All traffic is work for a GPU, whatever its kind.
_ROUTES: Final = {kind: Route(kind, True, JSON, kind in REPEATABLE) for kind in KINDS}


class AttemptIO(EngineAttempt):
    """One attempt of a simulated request."""

    __slots__ = ("attempt", "engine", "exchange")

    def __init__(
        self,
        id: str,
        exchange: SimulatedExchange,
        attempt: Attempt,
        engine: SimulatedEngine,
        streamed: bool,
        priority: int,
    ) -> None:
        arrival = exchange.arrival
        blocks = arrival.blocks
        if arrival.answer_blocks:
            blocks += arrival.answer_blocks
        super().__init__(
            id,
            arrival.prompt_tokens,
            arrival.output_tokens,
            blocks,
            priority,
            attempt.at,
            streamed,
        )
        self.exchange = exchange
        self.attempt = attempt
        self.engine = engine

    def identity(self) -> tuple[int, int]:
        return self.exchange.arrival.number, self.attempt.index

    def connected(self) -> None:
        if self.attempt in self.exchange.driver.live:
            self.exchange.driver.connected(self.attempt)

    def shown(self, now: float) -> None:
        self.exchange.content(self, now)

    def finished(self, now: float) -> None:
        self.exchange.completed(self, now)

    def refused(self, now: float) -> None:
        self.exchange.refused(self, now)

    def not_connected(self, now: float) -> None:
        self._failed(Reason.CONNECT_FAILED)

    def lost(self, now: float) -> None:
        self._failed(Reason.REPLICA_RESET)

    def _failed(self, reason: Reason) -> None:
        # Connections are never stale here, and vLLM sends its head at once.
        if self.attempt in self.exchange.driver.live:
            self.exchange.driver.failed(self.attempt, reason, reused=False, received=True)


@mypyc_attr(allow_interpreted_subclasses=True)
class Keeper(ABC):
    """A simulated router, as its requests see it."""

    __slots__ = ()

    @abstractmethod
    def engine_of(self, replica: Replica) -> SimulatedEngine:
        """What runs behind a replica."""

    @abstractmethod
    def call_at(self, when: float, number: int) -> None:
        """Look at the deadlines of a request then, if it is still there."""

    @abstractmethod
    def ended(self, exchange: SimulatedExchange) -> None:
        """A request is over."""


class SimulatedExchange(DrivenRequest):
    """A request under way. Times are the clock's seconds."""

    __slots__ = (
        "_context",
        "_keeper",
        "_timer",
        "arrival",
        "driver",
        "flow",
        "number",
        "outcome",
        "router",
        "told",
    )

    def __init__(
        self,
        keeper: Keeper,
        context: Context,
        router: int,
        number: int,
        arrival: Arrival,
        view: RequestView,
        urgency: Urgency,
        told: int,
        flow: Flow,
        now: float,
    ) -> None:
        """`router`, `number`: which router's request it is, and which of its; `told`: the number
        that engines get."""
        route = _ROUTES[arrival.kind if arrival.kind in _ROUTES else "other"]
        super().__init__(
            view,
            urgency,
            arrival.at,
            route,
            # What generates nothing shows nothing before it is whole.
            arrival.stream and arrival.output_tokens > 0,
            not arrival.stream,
            context.rules.times,
            b"",
        )
        if route.repeatable:
            self.hedges_as = arrival.priority
        self._keeper = keeper
        self._context = context
        self.router = router
        self.number = number  # among the router's
        self.arrival = arrival
        self.flow = flow
        self.outcome = Outcome(arrival, "", router, now)
        self.driver = RequestDriver(self, context)
        self.told = told
        self._timer = inf  # when the router looks at the deadlines

    def start(self, now: float) -> None:
        context = self._context
        queue = context.queue
        replica: Replica | None
        try:
            if queue is not None:
                replica = queue.enter(self, None)
                if replica is None:
                    return  # the queue sends it when it is its turn
                self.outcome.queued_s = 0.0
            else:
                replica = context.chooser.choose(self.view, self.candidates(()))
        except RouterError as err:
            self._finish(err.reason, now)
            return
        self.driver.begin(replica)

    # -- what the queue driver asks of it -----------------------------------------------------

    def on_queued(self, now: float) -> None:
        return

    def on_granted(self, now: float) -> None:
        self.outcome.queued_s = self.waited_s(now)

    def make_ticket(self, model: str, lane: str | None) -> Ticket:
        view, arrival, flow = self.view, self.arrival, self.flow
        return Ticket(
            self,
            model=model,
            lane=lane,
            number=self.urgency.number,
            key=flow.account,
            user=flow.member,
            known_key=flow.is_known,
            names_user=flow.user != "",
            tokens=view.prompt_tokens,
            arrival=arrival.at,
            body_bytes=view.prompt_bytes,
            streamed=self.streamed,
            look=partial(self._context.fleet.knowledge.held, view) if view.blocks else None,
            block_tokens=view.block_tokens,
        )

    def flow_key(self) -> tuple[str, str]:
        return self.flow.account, self.flow.member

    def may_move(self) -> bool:
        return self.route.repeatable

    def prepare(self, replica: Replica) -> Attempt:
        return self.driver.prepare(replica)

    def go(self, prepared: object) -> None:
        self.driver.go(cast(Attempt, prepared))

    def recall(self, now: float) -> None:
        self.driver.recall(now)

    def answer(self, err: RouterError) -> None:
        if not self.driver.tells_aside(err.reason):
            self._finish(err.reason, self._context.scheduler.now())

    def last_attempt(self) -> tuple[Replica, float] | None:
        attempts = self.driver.life.attempts
        return (attempts[-1].at, attempts[-1].began) if attempts else None

    # -- what its own driver asks of it -------------------------------------------------------

    def attach(self, attempt: Attempt) -> None:
        attempt.io = AttemptIO(
            f"{self.router}.{self.number}.{attempt.index}",
            self,
            attempt,
            self._keeper.engine_of(attempt.at),
            self.streamed,
            self.told,
        )
        self._tell_of(attempt)

    def open(self, attempt: Attempt, fresh: bool) -> None:
        io = io_of(attempt)
        io.engine.send(io)

    def drop(self, attempt: Attempt) -> None:
        io = io_of(attempt)
        if attempt is self.driver.life.winner:
            io.made = io.engine.generated(io)
        io.engine.cancel(io)

    def discard(self, attempt: Attempt) -> None:
        self.drop(attempt)

    def release(self, attempt: Attempt) -> None:
        return

    def can_resend(self) -> bool:
        return True

    def candidates(self, tried: Collection[object]) -> Sequence[Replica]:
        return self._context.fleet.eligible(self.view.model, tried)

    def look_by(self, due: float) -> None:
        self._set_timer(due)

    def said_at(self) -> float:
        winner = self.driver.life.winner
        assert winner is not None
        since = io_of(winner).engine.frozen_since
        return self._context.scheduler.now() if since is None else max(since, self.outcome.first)

    def computed_tokens(self, attempt: Attempt) -> int:
        io = io_of(attempt)
        return io.engine.computed(io)

    def see_work(self, attempt: Attempt) -> None:
        """Single tokens are no events here: tell the fleet what those of other streams show."""
        replica, since = attempt.at, io_of(attempt).engine.frozen_since
        own_waiting = replica.waiting - replica.foreign_waiting
        if replica.inflight > own_waiting:
            shown = self._context.scheduler.now() if since is None else since
            replica.progress.at = max(replica.progress.at, shown)

    def answer_failure(self, reason: Reason) -> None:
        self._finish(reason, self._context.scheduler.now())

    def tell_aside(self) -> None:
        life = self.driver.life
        life.told()
        winner = life.winner
        assert winner is not None
        self.outcome.replica = winner.replica_id
        self._finish(winner.reason, self._context.scheduler.now())

    def truncate(self, reason: Reason) -> None:
        winner = self.driver.life.winner
        assert winner is not None
        self._finish(
            reason, self._context.scheduler.now(), io_of(winner)
        )  # what was shown is the answer

    # -- what comes back ----------------------------------------------------------------------

    def content(self, io: AttemptIO, now: float) -> None:
        """An attempt shows its first token."""
        attempt, driver = io.attempt, self.driver
        if attempt not in driver.live or not driver.life.content(attempt):
            return
        self._won(attempt, now)
        self.outcome.first = now
        self._set_timer(now + self.times.token_gap_s)
        ttft_s = now - attempt.began if self.streamed else None
        if self.streamed:
            attempt.at.cadence.begins(now)
            io.relayed = 1
        driver.shows(attempt, ttft_s, now)

    def _won(self, attempt: Attempt, now: float) -> None:
        self._tell_of(attempt)
        for other in self.driver.live:
            if other is not attempt:
                self.outcome.wasted_tokens += self.computed_tokens(other)
        self.driver.won(attempt, now)

    def _tell_of(self, attempt: Attempt) -> None:
        """The outcome is about this attempt, as long as there is no better one."""
        outcome = self.outcome
        outcome.replica = attempt.replica_id
        outcome.dispatched = attempt.began
        outcome.expected_tokens = int(attempt.held * self.view.block_tokens)

    def completed(self, io: AttemptIO, now: float) -> None:
        """The answer is whole."""
        attempt, driver = io.attempt, self.driver
        if attempt not in driver.live:
            return
        if driver.life.winner is None:
            self.content(io, now)
        driver.completed(attempt, Reason.OK, now)
        self._context.fleet.succeeded(attempt.at, attempt.began)
        self._finish(Reason.OK, now, io)

    def refused(self, io: AttemptIO, now: float) -> None:
        """The engine answers with a 4xx: it is passed on, and nothing was prefilled. While another
        copy lives, or where an earlier refusal has the first word, it is put aside."""
        attempt, driver = io.attempt, self.driver
        if attempt not in driver.live:
            return
        reason = Reason.REPLICA_REFUSED
        if driver.holds_errors():
            driver.put_aside(attempt, reason)
            return
        driver.life.content(attempt)
        self._won(attempt, now)
        driver.shows_refusal(attempt, now)
        driver.completed(attempt, reason, now)
        self._finish(reason, now, io)

    # -- deadlines ----------------------------------------------------------------------------

    def _set_timer(self, due: float) -> None:
        if due < self._timer:
            self._timer = due
            self._keeper.call_at(due, self.number)

    def on_deadline(self, now: float) -> None:
        """The timer is here: a first token is overdue or too late, or no more tokens come."""
        if now != self._timer:
            return  # it was set to another time
        self._timer = inf
        driver = self.driver
        if driver.life.commit == Commit.CONTENT:
            # Single tokens are no events: they come at every step, and steps stop only where an
            # engine is frozen.
            due = self.said_at() + self.times.token_gap_s
            if due <= now:
                driver.timed_out(Reason.TOKEN_GAP_TIMEOUT)
            else:
                self._set_timer(due)
        else:
            driver.look(now)
            self._set_timer(driver.due())

    # -- the end ------------------------------------------------------------------------------

    def _finish(self, reason: Reason, now: float, answered: AttemptIO | None = None) -> None:
        """`answered`: the attempt whose answer, or a part of it, went to the client."""
        context, outcome, arrival = self._context, self.outcome, self.arrival
        life = self.driver.life
        if answered is None and not life.over:
            self.driver.cancel(reason)
        self.driver.close()
        if context.queue is not None:
            self._leave(context.queue, reason, now, answered)
        if answered is not None and answered.relayed:
            made = arrival.output_tokens if reason is Reason.OK else answered.made
            cadence = answered.replica.cadence
            cadence.events += max(0, made - answered.relayed)
            cadence.ends(now)
        metrics = context.metrics
        outcome.ended = now
        outcome.reason = reason
        outcome.attempts = len(life.attempts)
        if outcome.attempts > 1:
            outcome.hedged = any(one.kind == Kind.HEDGE for one in life.attempts)
            winner = life.winner
            shown = outcome.first >= 0.0
            outcome.hedge_won = shown and winner is not None and winner.kind == Kind.HEDGE
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
            context.chooser.finished(self.view, answered.replica, output)
        for attempt in life.attempts:
            metrics.attempt(attempt.replica_id, attempt.kind, attempt.reason)
        self._keeper.ended(self)

    def _leave(
        self, queue: QueueDriver, reason: Reason, now: float, answered: AttemptIO | None
    ) -> None:
        """The queue hears what the request really cost, as far as its engine told."""
        tokens, output, replica = -1, 0, None
        if answered is not None:
            replica, output = answered.replica, answered.made
            if reason is Reason.OK:
                output = self.arrival.output_tokens
                tokens = max(0, self.arrival.prompt_tokens - answered.cached_tokens)
        queue.over(self, reason, replica, tokens, output, now)


def io_of(attempt: Attempt) -> AttemptIO:
    """What runs an attempt in a simulation."""
    return cast(AttemptIO, attempt.io)
