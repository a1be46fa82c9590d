"""What a log says became of a request. Plain values; times in seconds of the traffic's clock."""

from __future__ import annotations

from router.core.errors import Reason


class Logged:
    """The end of one request as it was logged. None: the log does not say."""

    __slots__ = (
        "cached_tokens",
        "ended_s",
        "kv_tokens",
        "output_tokens",
        "prompt_tokens",
        "reason",
        "replica",
        "slots",
        "tpot_s",
        "ttft_s",
        "wait_s",
    )

    def __init__(
        self,
        *,
        replica: str = "",
        reason: str = Reason.OK.value,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
        wait_s: float | None = None,
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
        slots: int | None = None,
        kv_tokens: int | None = None,
        ended_s: float = 0.0,
    ) -> None:
        self.replica = replica  # that answered
        self.reason = reason
        self.ttft_s = ttft_s  # from its arrival; of a stream
        self.tpot_s = tpot_s  # per output token after the first; of a whole stream
        self.wait_s = wait_s  # in the router's queue
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = cached_tokens  # of the prompt
        self.output_tokens = output_tokens
        self.slots = slots  # requests that its replica runs at once
        self.kv_tokens = kv_tokens  # tokens that fit into its replica's KV cache
        self.ended_s = ended_s

    @property
    def ok(self) -> bool:
        """It got its whole answer."""
        return self.reason == Reason.OK.value
