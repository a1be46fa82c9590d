"""Queue tickets for tests: the objects that a request would have, from a few facts.

Must never know a queue.
"""

from collections.abc import Callable, Mapping
from typing import Any

from policies.facts import RequestView
from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import Ticket
from router.config.model import Classes
from router.dispatch.slos import class_slos

SLOS = class_slos(Classes())  # as shipped


def make_ticket(
    *,
    request: object = None,
    key: str = "",
    user: str = "",
    is_known: bool = False,
    is_member_counted: bool | None = None,
    weight: float = 1.0,
    tokens: int = 0,
    output: int = -1,
    output_limit: int = -1,
    body_bytes: int = 0,
    streamed: bool = True,
    look: Callable[[], Mapping[Any, int]] | None = None,
    block_tokens: float = 1.0,
    ttft_slo_s: float | None = None,
    **facts: Any,
) -> Ticket:
    """Make a ticket.

    `key` and `user` give its flow; by default a user is a flow of its own. `look`: result of the
    test pool's prefix lookup (`looked_up`); None: no prefix is known. `ttft_slo_s`: the SLO that
    the client states; None: that of its class. `facts`: fields of the ticket itself.
    """
    view = RequestView(
        stream=streamed,
        body_bytes=body_bytes,
        prompt_tokens=tokens,
        blocks=() if look is None else (1,),
        block_tokens=block_tokens,
        output_tokens=output,
        output_limit=output_limit,
    )
    view.chains = look
    flow = FlowIdentity(
        key,
        user,
        is_known=is_known,
        is_member_counted=bool(user) if is_member_counted is None else is_member_counted,
        weight=weight,
    )
    ticket = Ticket(request, view, flow, **facts)
    slo = SLOS[ticket.urgency]
    slo.fill(view, ticket.arrival)
    slo.state(view, None, ttft_slo_s or 0.0, 0.0)
    return ticket


def looked_up(view: RequestView) -> Mapping[Any, int]:
    """The prefix lookup of a test's pool for a request of `make_ticket`."""
    look: Any = view.chains
    found: Mapping[Any, int] = look()
    return found
