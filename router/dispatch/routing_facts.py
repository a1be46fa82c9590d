"""Computes the facts about an inference request that are needed for routing and hedging.

The facts are computed before a replica is chosen: the prompt as a chain of block hashes, the size
of the prompt, the session, and the class under which the request may be hedged. They are stored in
the request's `RequestView` and in its `Exchange`.

Must never: change the body, or reject a request.
"""

from __future__ import annotations

from typing import Final

from router.config.model import Config
from router.dispatch.context import Context
from router.dispatch.exchange import Exchange
from router.dispatch.rules import ArrivalRules
from router.dispatch.tenants import may_hedge
from router.intake.body import is_form
from router.intake.fields import Fields, Unread
from router.intake.media import Media, media_in
from router.intake.prompt import bounded_bytes, prompt_blocks, prompt_seed
from router.intake.values import session_of
from router.wire.http1.heads import RequestHead

_NO_MEDIA: Final = Media()


def session_in(head: RequestHead, fields: Fields) -> str | None:
    """Return the key of the conversation that a request belongs to; `None` if it names none."""
    session = head.routing.session
    return session_of(fields) if session is None else session.decode("utf-8", "replace")


def salt_of(config: Config) -> str:
    """Return the salt of the hashes of prompts, and of the names of flows; "": a random one.

    Routers that tell each other of them need the same one.
    """
    share = config.share
    return config.access_log.salt or (share.url and f"{share.url} {share.fleet}")


class RoutingFacts:
    """Computes the facts of each request of one router."""

    def __init__(self, context: Context, salt: str) -> None:
        """`salt`: the result of `salt_of` at the start. It stays the same after a reload:
        with another one, the prefixes in the index would not be found any more."""
        self._context = context
        self._prompt_seed = prompt_seed(salt)

    def fill(self, exchange: Exchange, rules: ArrivalRules) -> None:
        """Compute the facts of a request, and store them in its view and in the exchange."""
        view, asked = exchange.view, exchange.asked
        head, fields, body_bytes = asked.head, asked.fields, asked.body_bytes
        exchange.driver.allow_hedge(head.routing.hedge, may_hedge(asked.key), rules.hedges_choices)
        route = asked.route
        media = _NO_MEDIA
        # A body that is smaller than one block may only refer to media.
        if (body_bytes >= rules.block_bytes or asked.key is not None) and not (
            route.light or is_form(head.content_type)
        ):
            media = media_in(exchange.body or (), body_bytes, view.kind)
            view.media_tokens = media.tokens
        text_bytes = body_bytes - media.bytes
        if not route.is_known:
            if type(fields) is not Unread and not is_form(head.content_type):
                # A JSON body is mostly text; the estimate assumes 4 bytes per token.
                view.prompt_tokens = text_bytes // 4 + media.tokens
        elif body_bytes < rules.block_bytes:
            # The body is smaller than one block, so the exact size of the prompt matters little.
            view.prompt_tokens = text_bytes // 4 + media.tokens
        else:
            tenant = b""
            if rules.isolates_tenants:
                tenant = asked.flow.isolation
            blocks, prompt_bytes = prompt_blocks(
                view.kind,
                fields,
                rules.block_bytes,
                rules.blocks,
                tenant,
                text_bytes,
                self._prompt_seed,
                media.bytes > 0,
            )
            account = asked.flow.account
            self._context.fleet.knowledge.measure(view, blocks, prompt_bytes, account)
            if media.tokens:
                # Without a measured prompt, the text is all of the body that is not media.
                view.prompt_tokens = media.tokens + (view.prompt_tokens or text_bytes // 4)
            if route.light:
                # A light request uses no GPU, so no replica will hold the prompt's prefix.
                view.blocks = ()
        levels = self._context.fleet.context_levels
        if levels.is_used and view.decodes and route.is_known:
            view.output_limit = asked.output_limit
            # No prompt has more tokens than bytes.
            most = view.prompt_bytes + view.media_tokens + max(view.output_limit, 0)
            if most > levels.shortest:
                view.bounded_bytes = bounded_bytes(view.kind, fields, view.prompt_bytes)
        view.session = session_in(head, fields)
