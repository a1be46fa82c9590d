"""Reads a trace once, and collects its statistics, its fleet and its tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from router.lab.replay.logged_fleet import LoggedFleet
from router.lab.simulator.arrival import Arrival
from router.lab.traces import Trace, TraceFacts, describe

TENANTS_MAX: Final = 100_000
_PROGRESS_EVERY: Final = 4096  # requests between two calls of `on_progress`


@dataclass(frozen=True, slots=True)
class Seen:
    """The statistics, the fleet and the tenants of a trace."""

    facts: TraceFacts
    fleet: LoggedFleet
    tenants: frozenset[str]  # tenants with a known key; at most `TENANTS_MAX`


def read(trace: Trace, on_progress: Callable[[float], None] | None) -> Seen:
    """Read a trace once. `on_progress` is called with the share that has been read.

    Raises TraceError, OSError, and ValueError for a trace without requests.
    """
    watched = _Watched(trace, on_progress)
    facts = describe(watched)
    return Seen(replace(facts, notes=trace.notes()), watched.fleet, frozenset(watched.tenants))


class _Watched:
    """Traffic that yields the requests of a trace and collects its fleet and tenants."""

    def __init__(self, trace: Trace, on_progress: Callable[[float], None] | None) -> None:
        self.name = trace.name
        self.block_tokens = trace.block_tokens
        self.fleet = LoggedFleet()
        self.tenants: set[str] = set()
        self._trace = trace
        self._on_progress = on_progress

    def __iter__(self) -> Iterator[Arrival]:
        for number, arrival in enumerate(self._trace):
            self.fleet.add(arrival)
            if arrival.is_known and len(self.tenants) < TENANTS_MAX:
                self.tenants.add(arrival.tenant)
            if self._on_progress is not None and number % _PROGRESS_EVERY == 0:
                self._on_progress(self._trace.share())
            yield arrival

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()
