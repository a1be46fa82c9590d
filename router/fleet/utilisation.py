"""Utilisation: requests that run or wait, over the requests that run at once. One definition for
all: who hedges, who admits, who shows it.

The capacity of a replica is what it was configured to take, or what its engine says, whichever is
less; without either it is learned, from two things that polls show. What runs takes a share of the
KV cache: so many times as much would fit. And an engine that goes on queueing is full with what it
runs, whatever its cache has room for; but a prompt waits for the step under way, too, and an engine
with room in its cache is believed to be full only after a long time of it. One that runs more than
it was thought to hold was not full. Until something is learned nothing is said: `None`, never 0.

Must never: do I/O, or take what is unknown for idle or for full.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

POLLS: Final = 3  # in a row with a queue at a full cache (or one of which nothing is known) ...
POLLS_ROOM: Final = 10  # ... and at one with room; less are prompts on their way into the batch
KV_FULL: Final = 0.8  # share of the cache that is held; from here on what waits waits for room
KV_LEAST: Final = 0.02  # below it the share says too little of what would fit
SMOOTHING: Final = 0.25  # of a poll, in what is learned


class LearnedCapacity:
    """The requests an engine runs at once, by what its polls show."""

    __slots__ = ("_fit", "_full", "_queued")

    def __init__(self) -> None:
        self._full: float | None = None  # what it ran while it queued; None: it never did
        self._fit: float | None = None  # what would fit into its cache; None: not known
        self._queued = 0  # polls in a row that showed a queue

    @property
    def requests(self) -> float | None:
        """None: nothing was learned."""
        if self._full is None or self._fit is None:
            return self._fit if self._full is None else self._full
        return min(self._full, self._fit)

    def observed(
        self, running: int | None, waiting: int | None, kv_usage: float | None = None
    ) -> None:
        """One poll: everybody's requests at the engine, and the share of its KV cache that they
        hold. None: it did not say."""
        if running is None or waiting is None:
            self._queued = 0
            return
        if kv_usage is not None and kv_usage >= KV_LEAST and running:
            self._fit = _smoothed(self._fit, running / kv_usage)
        if self._full is not None and running > self._full:
            self._full = float(running)
        self._queued = self._queued + 1 if waiting and running else 0
        has_room = kv_usage is not None and kv_usage < KV_FULL
        if self._queued >= (POLLS_ROOM if has_room else POLLS):
            self._full = _smoothed(self._full, running)

    def forget(self) -> None:
        """The engine was started anew, maybe with other settings."""
        self._full = self._fit = None
        self._queued = 0


def _smoothed(known: float | None, seen: float) -> float:
    return float(seen) if known is None else known + (seen - known) * SMOOTHING


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
