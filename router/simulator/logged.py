"""What a log says became of a request. Plain values; times in seconds of the traffic's clock."""

from __future__ import annotations

from dataclasses import dataclass

from router.core.errors import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """The end of one request as it was logged. None: the log does not say."""

    replica: str = ""  # that answered
    reason: str = Reason.OK.value
    ttft_s: float | None = None  # from its arrival; of a stream
    tpot_s: float | None = None  # per output token after the first; of a whole stream
    wait_s: float | None = None  # in the router's queue
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt
    output_tokens: int | None = None
    slots: int | None = None  # requests that its replica runs at once
    kv_tokens: int | None = None  # tokens that fit into its replica's KV cache
    ended_s: float = 0.0

    @property
    def ok(self) -> bool:
        """It got its whole answer."""
        return self.reason == Reason.OK.value
