"""What the router learns about the speed and the size of one replica's engine."""

from __future__ import annotations

from policies.engine_speed import EngineSpeed
from router.core.round_trip import RoundTrip
from router.core.speed_learner import SpeedLearner
from router.fleet.cadence import Cadence
from router.fleet.learned_capacity import LearnedCapacity


class Learned:
    """The learners of one replica; each writes itself. No field is assigned after the start, but
    the round trip, which a replica with other connection settings takes over.
    """

    __slots__ = ("cadence", "capacity", "round_trip", "speeds")

    def __init__(self, speed: EngineSpeed) -> None:
        """`speed`: the speed with which policies predict latencies."""
        # How many requests the engine runs at once: learned from polls.
        self.capacity = LearnedCapacity()
        # Measures the speed of the streams that are relayed from this replica.
        self.cadence = Cadence()
        # Learns `speed` from relayed streams and polls.
        self.speeds = SpeedLearner(speed)
        self.round_trip = RoundTrip()  # The measured round-trip time; `speed.rtt_s` has a copy.

    def continues(self, other: Learned, *, is_known: bool) -> None:
        """Take over the round trip and the speeds. `is_known`: the speed of `other` is known."""
        self.round_trip = other.round_trip
        prefill, decode = other.speeds.prefill, other.speeds.decode
        self.speeds.start(
            prefill.coefficients() if is_known else [],
            decode.coefficients() if decode.samples else [],
        )
