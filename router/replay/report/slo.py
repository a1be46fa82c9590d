"""What is promised to requests. Plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request is promised. Raises ValueError.

    The defaults are what a person at a chat does not mind: two seconds until it begins, then ten
    tokens a second, which is faster than one reads.
    """

    ttft_s: float = 2.0
    tpot_s: float = 0.1

    def __post_init__(self) -> None:
        if not (0.0 < self.ttft_s < float("inf") and 0.0 < self.tpot_s < float("inf")):
            raise ValueError("an SLO is a time above 0")
