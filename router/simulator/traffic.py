"""What comes: requests in the order of their arrival, from a trace or a generator.

A source is read once, lazily, and holds a bounded number of requests at a time, so that ten million
of them need no more memory than ten. Must never: know a fleet or a policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from router.simulator.arrival import Arrival

__all__ = ["Arrival", "GoesOn", "Measured", "TraceError", "Traffic"]


class Traffic(Protocol):
    """A source of arrivals."""

    name: str
    block_tokens: int  # tokens of one of its blocks

    def __iter__(self) -> Iterator[Arrival]:
        """Arrivals by time, never going back. May raise `TraceError`."""

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """What comes because `ended` has been answered at `now`: the next turn of a conversation.

        Their `at` is at or after `now`. Nothing, for traffic whose times are all given.
        """


@runtime_checkable
class GoesOn(Protocol):
    """A source whose sessions go on after a request that failed."""

    def follow_failed(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """What comes although `ended` has failed at `now`. As `Traffic.follow`."""


@runtime_checkable
class Measured(Protocol):
    """A source that knows how far it has been read: for people who wait."""

    def share(self) -> float:
        """What was read of the whole, 0 to 1."""


class TraceError(ValueError):
    """A trace that cannot be read as what it says it is."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path = path
        self.line = line  # 1 is the first
        self.problem = problem
