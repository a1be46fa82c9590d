"""The service level objective (SLO) of requests: limits of TTFT and TPOT."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits of TTFT and TPOT in seconds. Raises ValueError.

    The defaults suit an interactive chat: two seconds to the first token, then ten tokens per
    second, which is faster than reading speed.
    """

    ttft_s: float = 2.0
    tpot_s: float = 0.1

    def __post_init__(self) -> None:
        if not (0.0 < self.ttft_s < float("inf") and 0.0 < self.tpot_s < float("inf")):
            raise ValueError("an SLO must be a finite time above 0")
