"""The interfaces of a recorder, which a simulation calls at the end of each request.

Must never: keep a reference to an outcome after the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from router.lab.simulator.outcome import Outcome


class Recorder(Protocol):
    """A callable that is called once for each request, when the request ends."""

    def ended(self, outcome: Outcome) -> None: ...


@runtime_checkable
class LoadRecorder(Protocol):
    """A recorder that also receives the load of each engine at regular intervals."""

    def sampled(self, now: float, loads: Sequence[float], /) -> None:
        """Receive the loads at the time `now`.

        `loads` has the number of running and waiting requests at each engine, by replica number.
        """
