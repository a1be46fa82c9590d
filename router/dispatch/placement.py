"""Sends a new request to its first replica, or gives it to the queue.

The first rule that applies decides:

1. A request that refers to a stored response goes to the replica of that response.
2. A request that uses no GPU goes to the least loaded replica of the nearest region.
3. An inference request goes to the queue, if the queue is enabled.
4. For any other request, the routing policy of its model chooses the replica.

If KV events are enabled, the request may wait for its token ids before these rules are applied. A
request that no known replica can take may wait for the first probe of a new replica.

Must never: choose the replica of a retry, a hedge or the rest of a stream (`driver/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from router.core.errors import Reason, RouterError
from router.dispatch.attempts.token_ids import TokenIds
from router.dispatch.context import Context
from router.dispatch.driver.first_probes import HELPED
from router.dispatch.exchange import Exchange
from router.dispatch.tenants import Tenants
from router.fleet.replica import Replica
from router.intake.routes import STORED_PREFIX, has_judged_body

# Bytes of a body above which its parsed fields are dropped before a replica is chosen.
_SMALL: Final = 4096


class Placement:
    """Sends the requests of one router to their first replicas, or to the queue."""

    def __init__(self, context: Context, tenants: Tenants) -> None:
        # Gets the token ids of prompts; set when KV events are enabled.
        self.token_ids: TokenIds | None = None
        self._context = context
        self._tenants = tenants

    def begin(self, exchange: Exchange, body: list[bytes]) -> None:
        """Send a request to a replica or the queue, now or when its token ids have come."""
        view, asked = exchange.view, exchange.asked
        fields = asked.fields
        if self.token_ids is not None and view.blocks:
            place = partial(self._place_with_tokens, exchange)
            question = self.token_ids.ask(view.kind, fields, body, view.allowed, place)
            if question is not None and not question.is_done:
                exchange.question = question
                fields.drop()
                return
            view.chains = question.chains if question is not None else None
        if asked.body_bytes > _SMALL:
            # The fields are views that would keep the body in memory after the body was sent.
            fields.drop()
        self.place(exchange)

    def _place_with_tokens(self, exchange: Exchange, chains: object) -> None:
        """Send a request that waited for its token ids to a replica or the queue.

        `chains`: `None` if the token ids came too late.
        """
        exchange.question = None
        exchange.view.chains = chains
        try:
            self.place(exchange)
        except Exception as err:
            exchange.crashed(err)

    def place(self, exchange: Exchange) -> None:
        """Send a request to a replica or the queue, or answer it with an error."""
        context = self._context
        if exchange.route.decodes:
            exchange.limit_context()
        if exchange.named is not None and exchange.driver.skips_absent_model():
            return
        queue, now = context.queue, context.scheduler.now()
        replica: Replica | None
        try:
            owner = self._owner(exchange)
            route = exchange.route
            if owner is not None and (queue is None or not route.inference):
                replica = owner
            elif route.light:
                replica = self._least_loaded(exchange, now)
            elif queue is not None and route.inference:
                replica = queue.enter(exchange, owner, now)
            else:
                replica = context.chooser.choose(exchange.view, exchange.candidates(()), now)
        except RouterError as err:
            retry, late = partial(self.place, exchange), partial(exchange.answer, err)
            if err.reason not in HELPED or not context.first_probes.hold(exchange, retry, late):
                exchange.answer(err)
            return
        if context.first_probes:
            context.first_probes.forget(exchange)
        if replica is not None:  # `None`: the queue sends the request later.
            exchange.driver.start(replica, now)

    def _owner(self, exchange: Exchange) -> Replica | None:
        """Return the replica that holds the stored response that the request refers to.

        Returns `None` if the request refers to no stored response, or if the replica of that
        response is unknown. Raises RouterError (STATE_LOST) if the replica is unknown and keys are
        required.
        """
        asked = exchange.asked
        stored = asked.fields.previous_response_id
        if stored is None and asked.path.startswith(STORED_PREFIX):
            stored = asked.path[len(STORED_PREFIX) :].partition(b"/")[0].decode("ascii", "replace")
        if stored is None:
            return None
        party, allowed = asked.flow.party, exchange.view.allowed
        exchange.pinned = owner = self._context.fleet.eligibility.owner_of(stored, party, allowed)
        if owner is None and self._tenants.requires_keys:
            # The response may have been created before this process started; then its owner is
            # unknown.
            raise RouterError(Reason.STATE_LOST, "there is no such response")
        return owner

    def _least_loaded(self, exchange: Exchange, now: float) -> Replica:
        """Return the least loaded replica of the nearest region, for a request without GPU work.

        A request that uses no GPU never waits, even if all replicas are at their limits. Raises
        RouterError if no replica is fit.
        """
        fleet, view = self._context.fleet, exchange.view
        if has_judged_body(exchange.asked.head.method):
            fleet.eligibility.check(view.model, view.allowed)
        fit: Sequence[Replica] = fleet.serving.of(view.model, view.allowed)
        if not fit:
            # This call raises RouterError with the reason why no replica is fit.
            fit = tuple(exchange.candidates(()))
        return min(self._context.chooser.nearby(view, fit, now), key=_load)


def _load(replica: Replica) -> tuple[int, int]:
    # Replicas are compared by `inflight`, too, because requests that use no GPU count only there.
    return replica.load, replica.inflight
