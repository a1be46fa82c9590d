"""The interfaces of a recorder, which a simulation tells of each end of a request.

Must never: keep an outcome that was handed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from router.simulator.outcome import Outcome


class Recorder(Protocol):
    """Hears of each request once, at its end, in the order of the ends."""

    def ended(self, outcome: Outcome) -> None: ...


@runtime_checkable
class LoadRecorder(Protocol):
    """A recorder that also wants to know, now and then, how the load is spread."""

    def sampled(self, now: float, loads: Sequence[float], /) -> None:
        """Requests at each engine at this moment, running and waiting, by replica number."""
