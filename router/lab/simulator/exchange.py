"""One request in a simulated router: replaces the proxy's network I/O by simulated engines.

The request driver (`dispatch/driver/request_driver.py`) and the queue driver make the decisions, as
in the proxy. Attempts run on engine cores. Deadlines and client disconnects are events of the
virtual clock. The end of a request becomes an `Outcome`.

Must never: choose a replica, or decide whether a request may be sent again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import Final, cast

from mypy_extensions import mypyc_attr

from policies.facts import RequestView
from router.core.errors import Reason, RouterError
from router.core.urgency import Urgency
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt, EnginePort, Kind
from router.dispatch.driver.deadlines import Deadlines
from router.dispatch.driver.placing import answer, place
from router.dispatch.driver.reports import content_shown
from router.dispatch.driver.request import Request
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.driver.request_end import end_request
from router.dispatch.driver.retries import failed, keep_error
from router.dispatch.driver.watch import check
from router.dispatch.rules import Times
from router.dispatch.usage.token_counts import Usage
from router.dispatch.usage.usage_estimate import MOST_OUTPUT, usage_before_content
from router.fleet.replica import Replica
from router.intake.flow import Flow
from router.intake.routes import JSON, KINDS, POSTS, Route
from router.lab.simulator.engine import EngineAttempt, SimulatedEngine
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.traffic import Arrival

# Kinds of routes whose requests may be sent again even if an engine may have executed them.
REPEATABLE: Final = frozenset(route.kind for route in POSTS.values() if route.repeatable)
# All simulated requests are inference requests, regardless of their kind.
_ROUTES: Final = {kind: Route(kind, True, JSON, kind in REPEATABLE) for kind in KINDS}
# The value of the request header for each value of `Arrival.hedging`.
_X_HEDGE: Final = {"on": b"on", "off": b"off"}
_NO_BODY: Final[list[bytes]] = []  # Simulated requests have sizes, but no bytes.


class SimulatedAttempt(EngineAttempt, EnginePort):
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

    def open(self, fresh: bool) -> None:
        self.engine.send(self)

    def drop(self) -> None:
        winner = self.exchange.state.winner
        if self.attempt is winner:
            self.made = self.engine.generated(self)
        elif winner is not None:  # Another attempt was faster.
            self.exchange.outcome.wasted_tokens += self.engine.computed(self)
        self.engine.cancel(self)

    def discard(self) -> None:
        self.drop()

    def free_connection(self) -> None:
        return

    def connected(self) -> None:
        if self.attempt in self.exchange.driver.state.live:
            self.exchange.driver.connected(self.attempt)
            if self.exchange.is_sent_once():
                self.exchange.body = None

    def first_token(self, now: float) -> None:
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
        if self.attempt not in self.exchange.driver.state.live:
            return
        self.exchange.see_work(self.attempt)
        failed(self.exchange.driver, self.attempt, reason)


@mypyc_attr(allow_interpreted_subclasses=True)
class RouterPort(ABC):
    """The methods of a simulated router that its requests call."""

    __slots__ = ()

    @abstractmethod
    def engine_of(self, replica: Replica) -> SimulatedEngine:
        """The engine of a replica."""

    @abstractmethod
    def call_at(self, when: float, number: int) -> None:
        """Check the deadlines of a request at the time `when`, if it has not ended by then."""

    @abstractmethod
    def ended(self, exchange: SimulatedExchange) -> None:
        """Remove a request that has ended."""


class ClockDeadlines(Deadlines):
    """The time limits of a simulated request, checked by the clock."""

    __slots__ = ("_leaves_at", "_number", "_port", "_timer")

    def __init__(
        self,
        port: RouterPort,
        number: int,
        arrival: Arrival,
        times: Times,
        route: Route,
        streams: bool,
        most: int,
    ) -> None:
        self._port = port
        self._number = number
        self._leaves_at = arrival.at + arrival.leaves_s  # When the client disconnects.
        self._timer = inf  # When the router next checks the deadlines of this request.
        super().__init__(times, route, arrival.at, streams=streams, most=most)

    def update(self) -> None:
        super().update()
        due = min(self.next_check, self._leaves_at)
        if due < self._timer:
            self._timer = due
            self._port.call_at(due, self._number)

    def rings(self, now: float) -> bool:
        """Whether the deadlines must be checked now: the check was not moved to another time."""
        if now != self._timer:
            return False
        self._timer = inf
        return True

    def client_leaves(self, now: float) -> bool:
        return self._leaves_at <= now


class SimulatedExchange(Request):
    """A request in progress. Times are the clock's seconds."""

    __slots__ = (
        "_clock",
        "_port",
        "arrival",
        "context",
        "driver",
        "engine_priority",
        "number",
        "outcome",
        "router",
    )

    def __init__(
        self,
        port: RouterPort,
        context: Context,
        router: int,
        number: int,
        arrival: Arrival,
        view: RequestView,
        urgency: Urgency,
        flow: Flow,
        may_ask: bool,
        now: float,
    ) -> None:
        """`router` is the router's number; `number` is the request's number within that router.

        `may_ask` tells whether the client's key may request second copies.
        """
        route = _ROUTES[arrival.kind if arrival.kind in _ROUTES else "other"]
        rules = context.rules
        clock = ClockDeadlines(
            port,
            number,
            arrival,
            rules.times_of(urgency.stated),
            route,
            view.stream,
            rules.attempts,
        )
        super().__init__(
            context.fleet, rules, view, urgency, arrival.at, route, b"", flow, _NO_BODY, clock
        )
        self.context = context
        self.driver = RequestDriver(self, context)
        self._clock = clock
        self.driver.allow_hedge(_X_HEDGE.get(arrival.hedging), may_ask)
        self._port = port
        self.router = router
        self.number = number  # number of the request within the router
        self.arrival = arrival
        self.outcome = Outcome(arrival, "", router, now)
        self.engine_priority = 0

    def start(self, engine_priority: int) -> None:
        """Place a request that was admitted. `engine_priority`: the `priority` that engines get."""
        self.engine_priority = engine_priority
        self.deadlines.update()  # Sets the timer, also if the request has no deadline.
        place(self.driver)

    def crashed(self, err: Exception) -> None:
        raise err

    def answer(self, err: RouterError) -> None:
        answer(self.driver, err)

    # -- calls of the request driver ----------------------------------------------------------

    def attach(self, attempt: Attempt) -> None:
        attempt.io = SimulatedAttempt(
            f"{self.router}.{self.number}.{attempt.index}",
            self,
            attempt,
            self._port.engine_of(attempt.at),
            self.view.stream,
            self.engine_priority,
        )
        if self.context.queue is not None:
            self.outcome.queued_s = self.deadlines.waited_s(attempt.began)
        self._record_attempt(attempt)

    def last_content_at(self) -> float:
        winner = self.driver.state.winner
        assert winner is not None
        since = io_of(winner).engine.frozen_since
        return self.context.scheduler.now() if since is None else max(since, self.outcome.first)

    def computed_tokens(self, attempt: Attempt) -> int:
        io = io_of(attempt)
        return io.engine.computed(io)

    def see_work(self, attempt: Attempt) -> None:
        """Update the time at which the replica last made progress, if it runs other requests.

        Called before a deadline is checked or a failure counts against the replica. Simulated
        tokens have no events, so an engine that is not frozen counts as making progress.
        """
        replica, since = attempt.at, io_of(attempt).engine.frozen_since
        own_waiting = replica.waiting - replica.foreign_waiting
        if replica.inflight > own_waiting:
            shown = self.context.scheduler.now() if since is None else since
            replica.progress.at = max(replica.progress.at, shown)

    def see_work_of(self, pool: Sequence[Replica]) -> None:
        """Update the time of the last progress of each replica with streams.

        Each running stream gets a token at the end of each step of its engine.
        """
        for replica in pool:
            if replica.learned.cadence.streams:
                worked_at = self._port.engine_of(replica).stepped_at()
                replica.progress.at = max(replica.progress.at, worked_at)

    def fail(self, err: RouterError) -> None:
        self._finish(err.reason, self.context.scheduler.now())

    def send_kept_error(self) -> None:
        state = self.driver.state
        state.kept_error_wins()
        winner = state.winner
        assert winner is not None
        self.outcome.replica = winner.replica_id
        self._finish(winner.reason, self.context.scheduler.now())

    def truncate(self, reason: Reason) -> None:
        winner = self.driver.state.winner
        assert winner is not None
        # The client has received the tokens that the answering attempt generated so far.
        self._finish(reason, self.context.scheduler.now(), io_of(winner))

    # -- events of attempts -------------------------------------------------------------------

    def content(self, io: SimulatedAttempt, now: float) -> None:
        """Process the arrival of an attempt's first token."""
        attempt, driver = io.attempt, self.driver
        if attempt not in driver.state.live or not driver.won(attempt, now):
            return
        self._record_attempt(attempt)
        self.outcome.first = now
        ttft_s = now - attempt.began if self.view.stream else None
        if self.view.stream:
            self.work.flows(attempt.at.learned.cadence, now)
            io.relayed = 1
        content_shown(self, self.context, attempt, ttft_s, now)

    def _record_attempt(self, attempt: Attempt) -> None:
        """Record an attempt in the outcome, instead of an attempt that was recorded before."""
        outcome = self.outcome
        outcome.replica = attempt.replica_id
        outcome.dispatched = attempt.began
        outcome.expected_tokens = int(attempt.held_blocks * self.view.block_tokens)

    def completed(self, io: SimulatedAttempt, now: float) -> None:
        """Process the end of an attempt's complete answer."""
        attempt, driver = io.attempt, self.driver
        if attempt not in driver.state.live:
            return
        if driver.state.winner is None:
            self.content(io, now)
        driver.completed(attempt, Reason.OK, now)
        self._finish(Reason.OK, now, io)

    def refused(self, io: SimulatedAttempt, now: float) -> None:
        """Process an error response (4xx) of an engine that prefilled nothing.

        The response is forwarded, unless another copy of the request runs or an earlier error
        response takes precedence.
        """
        attempt, driver = io.attempt, self.driver
        if attempt not in driver.state.live:
            return
        reason = Reason.REPLICA_REFUSED
        if driver.state.holds_errors():
            self.see_work(attempt)
            keep_error(driver, attempt, reason)
            return
        driver.won(attempt, now)
        self._record_attempt(attempt)
        driver.refused(attempt, reason, now)
        self._finish(reason, now, io)

    # -- the clock ----------------------------------------------------------------------------

    def on_deadline(self, now: float) -> None:
        """Check whether the client disconnects, and all time limits."""
        if not self._clock.rings(now):
            return
        for attempt in self.driver.state.live:
            self.see_work(attempt)
        if self._clock.client_leaves(now):
            self._client_gone(now)
        else:
            check(self.driver, now)

    def _client_gone(self, now: float) -> None:
        """End the request because its client disconnects, at the time given by the traffic.

        The outcome contains the tokens that the client received before.
        """
        reason, winner = Reason.CLIENT_GONE, self.driver.state.winner
        if winner is None:
            self.estimate_work(now)
            self._finish(reason, now)
            return
        answered = io_of(winner)
        self.driver.cancel(reason)
        self._finish(reason, now, answered)

    def estimate_work(self, now: float) -> None:
        for attempt in self.driver.state.live:
            limit = self.arrival.max_tokens
            most = MOST_OUTPUT if limit < 0 else float(limit)
            self.work.usage = usage_before_content(attempt, self.view.prompt_tokens, most, now)
            return

    # -- the end ------------------------------------------------------------------------------

    def _finish(self, reason: Reason, now: float, answered: SimulatedAttempt | None = None) -> None:
        """End the request and complete its outcome.

        `answered` is the attempt whose answer, or a part of it, was sent to the client.
        """
        outcome, state = self.outcome, self.driver.state
        self.driver.is_over = True
        tokens = 0
        if answered is not None:
            tokens = self._count_tokens(answered, reason)
        elif not state.over:
            self.driver.cancel(reason)
        shown = outcome.first >= 0.0
        # The token count is also the event count: each SSE event has one token.
        end_request(
            self.driver, reason, 200 if shown else 0, 0, tokens if self.view.stream else -1, now
        )
        outcome.ended = now
        outcome.reason = reason
        work, worth = self.work, self.view.worth
        outcome.gain_achieved = worth * max(0.0, work.tokens_on_time)
        outcome.gain_attainable = worth * max(0.0, work.tokens_due)
        estimate = self.estimate
        if estimate is not None and estimate.is_given:
            before_s = estimate.made_at - self.arrived
            outcome.estimate_s = before_s + estimate.estimate_s
            outcome.estimate_low_s = before_s + estimate.low_s
            outcome.estimate_high_s = before_s + estimate.high_s
        outcome.attempts = len(state.attempts)
        if outcome.attempts > 1:
            outcome.hedged = any(one.kind == Kind.HEDGE for one in state.attempts)
            winner = state.winner
            outcome.hedge_won = shown and winner is not None and winner.kind == Kind.HEDGE
        self._port.ended(self)

    def _count_tokens(self, answered: SimulatedAttempt, reason: Reason) -> int:
        """Record the token counts that the engine reports. Returns the number of output tokens."""
        arrival, output = self.arrival, answered.made
        if reason is Reason.OK:
            output, cached = arrival.output_tokens, answered.cached_tokens
            self.outcome.cached_tokens = cached
            self.work.usage = Usage(arrival.prompt_tokens, output, cached, True)
        elif output:
            self.work.usage = Usage(None, output, None, False)
        if answered.relayed:
            answered.attempt.at.learned.cadence.events += max(0, output - answered.relayed)
        return output


def io_of(attempt: Attempt) -> SimulatedAttempt:
    """The request at a simulated engine that belongs to an attempt of the request driver."""
    return cast(SimulatedAttempt, attempt.io)
