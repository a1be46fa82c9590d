"""Utilisation: requests that run or wait, over the requests that run at once. One definition for
all: who hedges, who admits, who shows it.

The capacity of a replica is what it was configured to take, or what its engine says, whichever is
less; without either it is learned: an engine that is seen to queue in several polls running is full
with what it runs, and one that runs more than that was not. Until then it is not known, and nothing
is said: `None`, never 0.

Must never: do I/O, or take what is unknown for idle or for full.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

POLLS: Final = 3  # in a row with a queue; shorter ones are requests on their way into the batch
SMOOTHING: Final = 0.25  # of a poll in a row, in a capacity that falls: longer prompts, fewer slots


class LearnedCapacity:
    """The requests an engine runs at once, by what its polls show."""

    __slots__ = ("_queued", "requests")

    def __init__(self) -> None:
        self.requests: float | None = None  # None: it was never seen to queue
        self._queued = 0  # polls in a row that showed a queue

    def observed(self, running: int | None, waiting: int | None) -> None:
        """One poll: everybody's requests at the engine. None: it did not say."""
        if running is None or waiting is None:
            self._queued = 0
            return
        known = self.requests
        if known is not None and running > known:
            self.requests = known = float(running)
        self._queued = self._queued + 1 if waiting and running else 0
        if self._queued >= POLLS:
            self.requests = running if known is None else known + (running - known) * SMOOTHING

    def forget(self) -> None:
        """The engine was started anew, maybe with other settings."""
        self.requests = None
        self._queued = 0


class Measured(Protocol):
    """What is needed of a replica."""

    load: int  # requests that run or wait: our own and others'
    slots: int | None  # requests that the engine says it runs at once
    learned: LearnedCapacity

    @property
    def configured_slots(self) -> int | None:
        """`max_inflight`."""


def capacity(replica: Measured) -> float | None:
    """Requests that run at once; None: nobody knows."""
    configured, slots = replica.configured_slots, replica.slots
    if configured is not None and slots is not None:
        return min(configured, slots)
    if configured is not None:
        return configured
    return slots if slots is not None else replica.learned.requests


def utilisation(replicas: Iterable[Measured]) -> float | None:
    """Of one replica or of a pool; above 1 where requests wait. None: no capacity is known.

    Replicas of unknown capacity are left out: the others stand for them.
    """
    load = 0
    total = 0.0
    for replica in replicas:
        found = capacity(replica)
        if found is not None:
            load += replica.load
            total += found
    return load / total if total else None
