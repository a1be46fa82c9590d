"""A request that a client sends directly to a simulated engine (`scenario.Neighbour`).

The client uses no router. It waits for the answer and never disconnects. Must never: be seen by a
router, except in the engine's metrics.
"""

from __future__ import annotations

from router.lab.simulator.clock import Clock
from router.lab.simulator.engine import EngineAttempt
from router.lab.simulator.scenario import Neighbour


class NeighbourRequest(EngineAttempt):
    """A request of a client that uses no router. The simulation waits for the request's end."""

    __slots__ = ("_clock", "_number")

    def __init__(self, number: int, neighbour: Neighbour, clock: Clock) -> None:
        super().__init__(
            f"neighbour {number}",
            neighbour.prompt_tokens,
            neighbour.output_tokens,
            (),
            0,
            None,
            False,
        )
        self._clock = clock
        self._number = number

    def identity(self) -> tuple[int, int]:
        return self._number, 0

    def connected(self) -> None:
        return

    def not_connected(self, now: float) -> None:
        self._clock.unfinished -= 1

    def first_token(self, now: float) -> None:
        return

    def finished(self, now: float) -> None:
        self._clock.unfinished -= 1

    def refused(self, now: float) -> None:
        self._clock.unfinished -= 1

    def lost(self, now: float) -> None:
        self._clock.unfinished -= 1
