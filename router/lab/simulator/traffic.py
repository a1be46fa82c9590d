"""The interface of a traffic source: requests in order of arrival, from a trace or a generator.

A source is read lazily, once per run, and keeps a limited number of requests in memory. Must never:
depend on a fleet or a policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from router.lab.simulator.arrival import Arrival

__all__ = ["Arrival", "ContinuesAfterFailure", "HasProgress", "TraceError", "Traffic"]


class Traffic(Protocol):
    """A source of arrivals."""

    name: str
    block_tokens: int  # tokens per block of `Arrival.blocks`

    def __iter__(self) -> Iterator[Arrival]:
        """Yield arrivals in ascending order of time. May raise `TraceError`."""

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """The requests that follow the answer to `ended`, such as a conversation's next turn.

        `now` is the time at which the answer ended; the requests arrive at this time or later. The
        result is empty if no request follows.
        """


@runtime_checkable
class ContinuesAfterFailure(Protocol):
    """A source whose sessions continue after a failed request."""

    def follow_failed(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """The requests that follow `ended`, which failed at `now`; otherwise like `follow`."""


@runtime_checkable
class HasProgress(Protocol):
    """A source that knows which fraction of it has been read, for a display of progress."""

    def share(self) -> float:
        """The fraction of the source that has been read, 0 to 1."""


class TraceError(ValueError):
    """Raised if the format of a trace is invalid."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path = path
        self.line = line  # line number in the file, from 1
        self.problem = problem
