"""Defines the durations and sizes of a run, and the order of the routers in each round.

Must never measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")
PACE = 50.0  # tokens/s of a paced stream
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of rounds, and the parameters of the measurement of one router."""

    rounds: int = 5
    seconds: int = 1  # length of a wrk run; wrk accepts only whole seconds
    paced_seconds: float = 1.0
    paced_streams: int = 256
    paced_lead: float = 0.5  # seconds of load before the measured window of paced streams
    flat_streams: int = 16
    flat_tokens: int = 400  # number of tokens of a stream without pacing
    cadence_seconds: float = 1.0
    idle_streams: int = 2000
    idle_tls_streams: int = 500
    large_bytes: int = 4 * MB
    bulk_bytes: int = 16 * MB  # above 8 MB, a body is routed without decoding

    @classmethod
    def quick(cls) -> Plan:
        return cls(
            rounds=2,
            paced_seconds=0.5,
            cadence_seconds=0.5,
            idle_streams=500,
            idle_tls_streams=200,
        )


def turns(items: Sequence[Item], round_: int) -> list[Item]:
    """Return the order of one round. Each round starts with the next router, so that no router is
    always first.
    """
    shift = round_ % len(items) if items else 0
    return [*items[shift:], *items[:shift]]
