"""Durations and sizes of a run, and the order of its turns.

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
    """Number of rounds, and the parameters of one turn."""

    rounds: int = 5
    seconds: int = 1  # length of a wrk run; whole seconds only
    paced_seconds: float = 1.0
    paced_streams: int = 256
    paced_lead: float = 0.5  # seconds of load before the paced window
    flat_streams: int = 16
    flat_tokens: int = 400  # tokens of a stream without pacing
    cadence_seconds: float = 1.0
    idle_streams: int = 2000
    idle_tls_streams: int = 500
    large_bytes: int = 4 * MB
    bulk_bytes: int = 16 * MB  # over the 8 MB above which a body is routed without decoding

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
    """The order of one round: each round starts with the next router, so that none is
    always first.
    """
    shift = round_ % len(items) if items else 0
    return [*items[shift:], *items[:shift]]
