"""The result of a request in an access log, for comparison with its simulated result.

The class has its own file because it is compiled. Must never: influence the simulation.
"""

from __future__ import annotations

from typing import Final

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
