"""Places a new request, when its token IDs have come if KV events are enabled.

Must never: choose a replica (`driver/placing.py` does).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from router.dispatch.attempts.token_ids import TokenIds
from router.dispatch.driver.placing import place
from router.dispatch.exchange import Exchange

# Bytes of a body above which its parsed fields are dropped before a replica is chosen.
_SMALL: Final = 4096


class Placement:
    """Places the requests of one router."""

    def __init__(self) -> None:
        # Gets the token ids of prompts; set when KV events are enabled.
        self.token_ids: TokenIds | None = None

    def begin(self, exchange: Exchange, body: list[bytes]) -> None:
        """Send a request to a replica or the queue, now or when its token ids have come."""
        view, asked = exchange.view, exchange.asked
        fields = asked.fields
        if self.token_ids is not None and view.blocks:
            done = partial(_place_with_tokens, exchange)
            question = self.token_ids.ask(view.kind, fields, body, view.allowed, done)
            if question is not None and not question.is_done:
                exchange.question = question
                fields.drop()
                return
            view.chains = question.chains if question is not None else None
        if asked.body_bytes > _SMALL:
            # The fields are views that would keep the body in memory after the body was sent.
            fields.drop()
        place(exchange.driver)


def _place_with_tokens(exchange: Exchange, chains: object) -> None:
    """Send a request that waited for its token ids to a replica or the queue.

    `chains`: `None` if the token ids came too late.
    """
    exchange.question = None
    exchange.view.chains = chains
    try:
        place(exchange.driver)
    except Exception as err:
        exchange.crashed(err)
