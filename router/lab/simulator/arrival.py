"""One request of the traffic. This file has compiled classes only, so `traffic` is another one.

`Logged`: the result of a request in an access log, for comparison with its simulated result.

Must never: influence the simulation.
"""

from __future__ import annotations

from math import inf, nan
from typing import Final

from mypy_extensions import mypyc_attr

from router.core.errors import Reason

_OK: Final = Reason.OK.value


class Logged:
    """The logged result of one request. A field is None if the log has no value for it.

    `ttft_s` and `tpot_s` have the same definitions as in `Outcome`.
    """

    __slots__ = (
        "cached_tokens",
        "client_region",
        "ended_s",
        "kv_tokens",
        "model",
        "output_tokens",
        "prompt_tokens",
        "reason",
        "region",
        "replica",
        "replica_type",
        "slots",
        "tpot_s",
        "ttft_s",
        "wait_s",
    )

    def __init__(
        self,
        reason: str,
        ended_s: float,
        *,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
        wait_s: float = 0.0,
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
        replica: str = "",
        slots: int | None = None,
        kv_tokens: int | None = None,
        region: str = "",
        client_region: str = "",
        replica_type: str = "",
        model: str = "",
    ) -> None:
        self.reason = reason  # a value of `core.errors.Reason`; "ok": the request was answered
        self.ended_s = ended_s  # seconds from the request's arrival to its end
        self.ttft_s = ttft_s  # seconds from the request's arrival to its first token
        self.tpot_s = tpot_s  # seconds per output token after the first
        self.wait_s = wait_s  # seconds in the router's queue; 0: the request did not wait
        # Token counts as reported by the engine.
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = cached_tokens  # prompt tokens found in the engine's cache
        self.output_tokens = output_tokens
        self.replica = replica  # the ID of the replica that answered; "": no replica
        self.slots = slots  # the number of requests that this replica runs at once
        self.kv_tokens = kv_tokens  # the size of this replica's KV cache, in tokens
        self.region = region  # the region of this replica; "": no replica, or no region
        self.client_region = client_region  # the region that the client prefers
        self.replica_type = replica_type  # the configured type of this replica
        self.model = model  # the model that was requested from replicas; "": the client's

    @property
    def is_ok(self) -> bool:
        """Whether the client received the complete answer."""
        return self.reason == _OK


@mypyc_attr(allow_interpreted_subclasses=True)
class Arrival:
    """One request of the traffic.

    `blocks` has one hash for each full block of `Traffic.block_tokens` prompt tokens. The hashes
    are chained: each stands for the whole prompt up to the end of its block. Two requests whose
    first n hashes are equal share n KV blocks. `blocks` is empty if the source of the traffic does
    not know the blocks.
    """

    __slots__ = (
        "answer_blocks",
        "at",
        "blocks",
        "deadline_s",
        "hedging",
        "is_known",
        "kind",
        "leaves_s",
        "logged",
        "max_tokens",
        "model",
        "number",
        "output_tokens",
        "priority",
        "priority_number",
        "prompt_tokens",
        "session",
        "stream",
        "tenant",
        "tpot_slo_s",
        "ttft_slo_s",
        "user",
        "within",
    )

    def __init__(
        self,
        number: int,
        at: float,
        prompt_tokens: int,
        output_tokens: int,
        blocks: tuple[int, ...] = (),
        *,
        tenant: str = "",
        within: str = "",
        user: int = 0,
        is_known: bool = False,
        priority: str = "",
        session: str | None = None,
        model: str | None = None,
        stream: bool = True,
        kind: str = "chat",
        answer_blocks: tuple[int, ...] = (),
        priority_number: float = nan,
        deadline_s: float = inf,
        leaves_s: float = inf,
        max_tokens: int = -1,
        hedging: str = "",
        ttft_slo_s: float = 0.0,
        tpot_slo_s: float = 0.0,
        logged: Logged | None = None,
    ) -> None:
        self.number = number  # unique number in the traffic: the order in the source
        self.at = at  # arrival in seconds since the beginning of the traffic, >= 0
        self.prompt_tokens = prompt_tokens  # tokens of the prompt, >= 1
        self.output_tokens = output_tokens  # tokens of the answer, >= 0; 0: nothing is generated
        self.blocks = blocks
        self.tenant = tenant  # the tenant's ID; "": the source does not identify tenants
        # The client address whose fair share of the queue the request uses, as in `intake.flow`.
        self.within = within
        self.is_known = is_known  # True: the request's tenant has a configured key
        self.user = user  # the user's number within the tenant; 0: the request names no user
        self.priority = priority  # the name of the request's priority class; "": none
        self.session = session  # the ID of the request's conversation
        self.model = model
        self.stream = stream
        self.kind = kind  # the route, as in `policies.contract.RequestView`
        # Hashes of the full blocks that end within the answer, if the next turn of the conversation
        # will reuse these blocks. Engines cache them; routers do not know them.
        self.answer_blocks = answer_blocks
        # The urgency on the router's scale (`core/urgency.py`); NaN: the urgency of the class.
        self.priority_number = priority_number
        # Seconds after the arrival by which the client wants content; infinity: no deadline.
        self.deadline_s = deadline_s
        # Seconds after the arrival at which the client disconnects; infinity: never.
        self.leaves_s = leaves_s
        self.max_tokens = max_tokens  # the client's limit of output tokens; below 0: no limit
        # "on": the client requests a second copy; "off": the client forbids second copies.
        self.hedging = hedging
        # The latency targets (SLOs) that the client states, in seconds; 0: no target.
        self.ttft_slo_s = ttft_slo_s
        self.tpot_slo_s = tpot_slo_s
        self.logged = logged  # the request's result in the access log; None: not from an access log
