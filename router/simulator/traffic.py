"""The interface of traffic: requests in order of arrival, from a trace or a generator.

A source is read lazily, once per run, and holds a bounded number of requests in memory. Must never:
depend on a fleet or a policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from router.simulator.arrival import Arrival

__all__ = ["Arrival", "ContinuesAfterFailure", "HasProgress", "TraceError", "Traffic"]


class Traffic(Protocol):
    """A source of arrivals."""

    name: str
    block_tokens: int  # tokens per block of `Arrival.blocks`

    def __iter__(self) -> Iterator[Arrival]:
        """Yield arrivals in ascending order of time. May raise `TraceError`."""

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """The requests that follow the answer to `ended`, such as a conversation's next turn.

        `now`: when the answer ended; the requests arrive at or after it. The result is empty if no
        arrival depends on an answer.
        """


@runtime_checkable
class ContinuesAfterFailure(Protocol):
    """A source whose sessions continue after a failed request."""

    def follow_failed(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """The requests that follow `ended`, which failed at `now`. As `Traffic.follow`."""


@runtime_checkable
class HasProgress(Protocol):
    """A source that knows the share that has been read, for a progress line."""

    def share(self) -> float:
        """The share of the source that has been read, 0 to 1."""


class TraceError(ValueError):
    """A trace that is invalid in its format."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path = path
        self.line = line  # line number in the file, from 1
        self.problem = problem
