"""A request in the proxy as its attempts and the drivers use it: its body, ticket, and candidates.

Each `AttemptIO` gets its request as this class. The subclass `Exchange` (`exchange.py`) holds the
attempts' connections and deals with the client.

Must never: write to the client, or end the request.
"""

from __future__ import annotations

import logging
from abc import abstractmethod

from policies.contract import RequestView
from policies.queueing.ticket import Ticket
from router.core.errors import Reason, RouterError
from router.core.urgency import Urgency
from router.dispatch.client_request import ClientRequest
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.deadlines import Deadlines
from router.dispatch.driver.placing import answer
from router.dispatch.driver.request import Request
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.reply import Reply
from router.fleet.names import Target
from router.fleet.replica import Replica
from router.fleet.suspects import digest_of
from router.intake.routes import STORED_PREFIX, has_judged_body
from router.observe.events import log_event
from router.wire.http1.heads import ResponseHead
from router.wire.http1.response_reader import ResponseReader


class ProxiedRequest(Request):
    """A request whose attempts are sent over sockets. Times are monotonic seconds."""

    __slots__ = ("_digest", "asked", "driver")

    def __init__(
        self,
        context: Context,
        asked: ClientRequest,
        body: list[bytes],
        request_id: bytes,
        arrived: float,
        urgency: Urgency,
        target: Target | None,
        deadlines: Deadlines,
    ) -> None:
        """`target`: the model that the client's name stands for; `None`: the name means itself."""
        fleet, route = context.fleet, asked.route
        models = fleet.models
        model = models.routed(asked.model) if target is None else models.routed_target(target)
        view = RequestView(route.kind, model, asked.streamed, asked.body_bytes)
        view.choices = asked.choices
        rules = context.rules
        super().__init__(
            fleet,
            rules,
            view,
            urgency,
            arrived,
            route,
            request_id,
            asked.flow,
            body,
            deadlines,
        )
        self.named = asked.named
        self.target = target
        self.asked = asked
        self.driver = RequestDriver(self, context)
        self._digest = b""

    def priced_model(self) -> str | None:
        """Return the model whose price the request has. A model in a pool has the model's price."""
        target = self.target
        return target.model if target is not None and target.pool else self.view.model

    # -- what the replicas depend on -----------------------------------------------------------

    def judges_body(self) -> bool:
        return has_judged_body(self.asked.head.method)

    def owner(self) -> Replica | None:
        """Return the replica that holds the stored response that the request refers to.

        Returns `None` if the request refers to no stored response, or if the replica of that
        response is unknown. Raises RouterError (STATE_LOST) if the replica is unknown and keys are
        required.
        """
        asked = self.asked
        stored = asked.fields.previous_response_id
        if stored is None and asked.path.startswith(STORED_PREFIX):
            stored = asked.path[len(STORED_PREFIX) :].partition(b"/")[0].decode("ascii", "replace")
        if stored is None:
            return None
        party, allowed = asked.flow.party, self.view.allowed
        self.pinned = owner = self.context.fleet.eligibility.owner_of(stored, party, allowed)
        if owner is None and self.rules.requires_keys:
            # The response may have been created before this process started; then its owner is
            # unknown.
            raise RouterError(Reason.STATE_LOST, "there is no such response")
        return owner

    def make_ticket(self, model: str, lane: str | None) -> Ticket:
        self.view.output_limit = self.asked.output_limit
        return super().make_ticket(model, lane)

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

    @property
    def context(self) -> Context:
        return self.driver.context

    # -- its driver ----------------------------------------------------------------------------

    def prepare(self, replica: Replica, now: float) -> Attempt:
        return self.driver.prepare(replica, now)

    def go(self, attempt: Attempt) -> None:
        self.driver.go(attempt)

    def recall(self, now: float) -> None:
        self.driver.recall(now)

    def answer(self, err: RouterError) -> None:
        answer(self.driver, err)

    # -- the interface for the attempts --------------------------------------------------------

    @abstractmethod
    def body_sent(self) -> None:
        """Called when a replica has read most of the request's body."""

    @abstractmethod
    def interim(self, heads: list[ResponseHead]) -> None:
        """Handle 1xx responses."""

    @abstractmethod
    def content(self, attempt: Attempt, reader: ResponseReader, now: float) -> Reply | None:
        """Relay an attempt that shows its first content, unless another attempt was first.

        Returns the `Reply` that relays the attempt's bytes to the client; `None` if the bytes are
        discarded.
        """

    @abstractmethod
    def completed(self, attempt: Attempt, reader: ResponseReader, now: float) -> None:
        """End the request: the attempt's response is complete and was relayed."""

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
