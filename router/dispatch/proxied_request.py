"""The part of a request in the proxy that deals with replicas: attempts, body, and queue ticket.

The request driver and the queue driver call this class. Its subclass `Exchange` (`exchange.py`)
deals with the client.

Must never: write to the client, or end the request.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from policies.contract import RequestView
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import Ticket
from router.core.clock import monotonic
from router.core.urgency import Urgency
from router.dispatch.attempts.attempt_io import AttemptedRequest, AttemptIO
from router.dispatch.attempts.sending import send
from router.dispatch.client_request import ClientRequest
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.usage.token_counts import Usage
from router.dispatch.usage.usage_estimate import most_generated, usage_before_content
from router.fleet.engines.common.descriptor import Abort
from router.fleet.names import Target
from router.fleet.replica import Replica
from router.fleet.suspects import digest_of
from router.intake.routes import has_judged_body
from router.observe.events import log_event
from router.wire.replica import ReplicaConnection


class ProxiedRequest(AttemptedRequest):
    """A request whose attempts are sent over sockets. Times are monotonic seconds."""

    __slots__ = ("_digest",)

    def __init__(
        self,
        context: Context,
        asked: ClientRequest,
        body: list[bytes],
        request_id: bytes,
        arrived: float,
        urgency: Urgency,
        target: Target | None = None,
    ) -> None:
        """`target`: the model that the client's name stands for; `None`: the name means itself."""
        route = asked.route
        models = context.fleet.models
        model = models.routed(asked.model) if target is None else models.routed_target(target)
        view = RequestView(route.kind, model, asked.streamed, asked.body_bytes)
        view.choices = asked.choices
        super().__init__(context, view, urgency, arrived, route, request_id)
        self.named = asked.named
        self.target = target
        self.asked = asked
        self.body = body
        self.rules = context.rules
        self._digest = b""

    def priced_model(self) -> str | None:
        """Return the model whose price the request has. A model in a pool has the model's price."""
        target = self.target
        return target.model if target is not None and target.pool else self.view.model

    # -- the interface for the queue -----------------------------------------------------------

    def make_ticket(self, model: str, lane: str | None) -> Ticket:
        view, asked = self.view, self.asked
        view.output_limit = asked.output_limit
        return Ticket(
            self,
            view,
            asked.flow,
            model=model,
            lane=lane,
            number=self.urgency.number,
            arrival=self.arrived,
            deadline=self.wanted_until,
            concurrency=self.concurrency,
        )

    def flow_identity(self) -> FlowIdentity:
        return self.asked.flow

    def may_move(self) -> bool:
        return self.asked.body_bytes <= self.rules.retry_body and self.route.repeatable

    # -- the interface for the request driver --------------------------------------------------

    def attach(self, attempt: Attempt) -> None:
        attempt.io = AttemptIO(self, attempt)

    def open(self, attempt: Attempt, fresh: bool) -> None:
        io_of(attempt).start(fresh)

    def drop(self, attempt: Attempt) -> None:
        io_of(attempt).cancel()

    def discard(self, attempt: Attempt) -> None:
        io_of(attempt).discard()

    def free_connection(self, attempt: Attempt) -> None:
        io_of(attempt).finish()

    def can_resend(self) -> bool:
        return self.body is not None

    def is_sent_once(self) -> bool:
        # The body may be too large to keep.
        return self.asked.body_bytes > self.rules.retry_body or not self.route.is_known

    def evidence(self) -> int:
        flow = self.asked.flow
        return hash((flow.account, flow.member, b"".join(self.body or ())))

    def candidates(self, tried: Collection[object]) -> Sequence[Replica]:
        model = self.view.model
        # A request that is not inference and names no model can go to any replica.
        anyone = model is None and not has_judged_body(self.asked.head.method)
        allowed = self.view.allowed
        return self.context.fleet.eligibility.replicas(model, allowed, tried, anyone=anyone)

    # -- the interface for the attempts --------------------------------------------------------

    def send(self, io: AttemptIO, conn: ReplicaConnection) -> None:
        """Send the request over the connection of the attempt."""
        if not self.driver.may_send(io.attempt):
            conn.cancel()
            return
        io.conn = conn
        self.driver.connected(io.attempt)
        send(io, conn, self)
        if self.is_sent_once():
            self.release_body()

    def is_sending(self) -> bool:
        """Whether a part of the request's body has not been sent to a replica yet."""
        for attempt in self.driver.live:
            conn = io_of(attempt).conn
            if conn is not None and conn.is_sending:
                return True
        return False

    def digest(self) -> bytes:
        if not self._digest and self.body:
            self._digest = digest_of(self.asked.path, self.body)
        return self._digest

    def release_body(self) -> None:
        """Stop keeping the request's body for other attempts.

        The memory of the body is released after all of the body was sent.
        """
        if self.context.fleet.suspects.is_enabled:
            self.digest()  # The attempt that runs may be lost.
        self.body = None
        self.body_sent()

    def abort(self, attempt: Attempt, rule: Abort, conn: ReplicaConnection) -> None:
        """Stop an attempt at an engine that does not stop when its connection closes."""
        asked = self.asked
        assert asked.aborter is not None, "only the aborter names attempts"
        authorization = asked.head.authorization if asked.forwards_key else None
        asked.aborter.abort(attempt.at, rule, attempt.rid, conn, authorization)

    # -- learning from the answer --------------------------------------------------------------

    def learn_response(self, made: str, replica: Replica) -> None:
        """Record which replica holds a stored response.

        If this request created the response, the response's owner is recorded, too.
        """
        affinity = self.context.fleet.response_affinity
        if not self.route.inference:
            affinity.shown(made, replica.id)
        elif not affinity.learn(made, replica.id, self.asked.flow.party):
            log_event(
                logging.WARNING,
                "a response has the id of another party's stored response",
                key=f"response {replica.id}",
                replica=replica.id,
                tenant=self.asked.flow.account,
            )

    def estimate_work(self) -> None:
        """Estimate the tokens that an engine used for a client that left before any content.

        A request costs nothing if no engine received it or if the engine refused it.
        """
        if self.work.replica is not None or not self.route.inference:
            return
        now = monotonic()
        for attempt in self.driver.live:
            conn = io_of(attempt).conn
            if conn is None:
                continue  # This attempt was not sent to an engine.
            head = conn.reader.head
            if head is not None and head.status != 200:
                continue  # The engine of this attempt refused the request, so it used no tokens.
            if self.route.light:
                self.work.usage = Usage(0, 0, None, False)  # `usage.charges` apply.
                return
            asked = self.asked
            prompt = asked.prompt_tokens(self.view.prompt_tokens)
            self.work.usage = usage_before_content(attempt, prompt, most_generated(asked), now)
            return


def io_of(attempt: Attempt) -> AttemptIO:
    """Return the `AttemptIO` object of an attempt in the proxy."""
    io = attempt.io
    assert isinstance(io, AttemptIO)
    return io
