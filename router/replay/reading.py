"""One pass over a trace: what it is, the fleet behind it, and how far it has been read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from router.replay.logged_fleet import LoggedFleet
from router.simulator.arrival import Arrival
from router.traces import Trace, TraceFacts, describe

_TELL_EVERY: Final = 4096  # requests


def read(
    trace: Trace, on_progress: Callable[[float], None] | None
) -> tuple[TraceFacts, LoggedFleet]:
    """`on_progress`: is told the share that has been read. Raises TraceError, OSError, and
    ValueError if nothing comes."""
    watched = _Watched(trace, on_progress)
    facts = describe(watched)
    return replace(facts, notes=trace.notes()), watched.fleet


class _Watched:
    """A trace as `Traffic`."""

    def __init__(self, trace: Trace, on_progress: Callable[[float], None] | None) -> None:
        self.name = trace.name
        self.block_tokens = trace.block_tokens
        self.fleet = LoggedFleet()
        self._trace = trace
        self._tell = on_progress

    def __iter__(self) -> Iterator[Arrival]:
        for number, arrival in enumerate(self._trace):
            self.fleet.add(arrival)
            if self._tell is not None and number % _TELL_EVERY == 0:
                self._tell(self._trace.share())
            yield arrival

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()
