"""The answers that the router gives itself: `/v1/models`, `/health`, `OPTIONS *`, preflights.

Errors of the router are sent by the exchange (`Exchange.answer`).

Must never: use a replica, or reveal a model that the request's key may not see.
"""

from __future__ import annotations

from urllib.parse import unquote

from router.core.clock import monotonic
from router.core.errors import Reason, RouterError
from router.dispatch.exchange import Exchange
from router.dispatch.messages import MESSAGES
from router.dispatch.tenants import models_of
from router.fleet.table.eligibility import RETRY_AFTER_S
from router.intake.routes import MODELS_PATH
from router.wire.client import PIECE, ClientConnection
from router.wire.http1 import answers
from router.wire.http1.error_shapes import ANTHROPIC_VERSION
from router.wire.http1.headers import value_of


def answer_models(exchange: Exchange, client: ClientConnection) -> bool:
    """Answer `/v1/models` from the fleet's model list.

    Returns False if the list is empty or does not contain the model; a replica answers then. Raises
    RouterError if the model does not exist or the key may not see it.
    """
    asked, fleet = exchange.asked, exchange.context.fleet
    if asked.head.method not in (b"GET", b"HEAD"):
        return False
    regions = exchange.view.allowed
    models = fleet.listing.of(regions)
    if not len(models):
        return False
    if value_of(asked.head.lines, ANTHROPIC_VERSION) is not None:
        models = models.for_anthropic()
    allowed = models_of(asked.key)
    if asked.path == MODELS_PATH:
        body = models.whole if allowed is None else models.part(allowed)
    else:
        name = unquote(asked.path[len(MODELS_PATH) + 1 :].decode("utf-8", "replace"))
        is_hidden = allowed is not None and name not in allowed
        found = None if is_hidden else models.entry(name)
        if found is None:
            if is_hidden:
                raise RouterError(
                    Reason.MODEL_NOT_FOUND, f"the model `{name}` does not exist", param="model"
                )
            named = fleet.models.names.find(name)
            served = fleet.models.routed(name if named is None else named.targets[0].routed)
            fleet.may_learn(served)  # A later request may find the model.
            # This call raises RouterError with the reason why the model is missing.
            fleet.eligibility.replicas(served, regions)
            return False
        body = found
    answer_locally(exchange, client, body)
    return True


def answer_health(exchange: Exchange, client: ClientConnection, unready: Reason | None) -> None:
    """Answer `/health` like an engine: 200 with an empty body, without a key.

    Raises RouterError (503) if load balancers should not use the router, because of `unready`.
    """
    if unready is Reason.NO_REPLICA:
        raise RouterError(unready, "no replica is up", retry_after_s=RETRY_AFTER_S)
    if unready is not None:
        raise RouterError(unready, MESSAGES[unready], retry_after_s=1)
    answer_locally(exchange, client, b"")


def answer_locally(
    exchange: Exchange, client: ClientConnection, body: bytes, extra: bytes = b""
) -> None:
    """End a request with a 200 response. `extra`: complete header lines."""
    keep_alive = client.keeps_alive
    is_head = exchange.asked.head.method == b"HEAD"
    # A long list of models is written as fast as the client reads it. Otherwise clients that do not
    # read would multiply its memory.
    is_apart = len(body) > PIECE and not is_head
    answer = answers.response(
        200,
        body,
        keep_alive=keep_alive,
        request_id=exchange.request_id.decode("ascii"),
        extra=extra + client.cors_lines,
        head_only=is_head or is_apart,
    )
    reply = exchange.reply
    reply.status = 200
    reply.bytes_out = len(body)
    reply.is_complete = True
    client.write(answer)
    now = monotonic()
    exchange.finish(Reason.OK, now)
    client.finish(body if is_apart else b"", keep_alive, now)
