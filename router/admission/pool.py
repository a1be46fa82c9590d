"""The interface through which the queue reads the fleet.

The queue also reads the replicas' loads (`core/replica_load.py`). It must never change them. An
unknown fact is `None`, never 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from mypy_extensions import mypyc_attr

from policies.facts import RequestView
from router.core.errors import RouterError
from router.core.replica_load import ReplicaLoad


@mypyc_attr(allow_interpreted_subclasses=True)
class Pool(ABC):
    """The replicas behind one queue."""

    @abstractmethod
    def eligible(self, lane: str) -> Sequence[ReplicaLoad]:
        """The replicas that are fit for this lane now, even if they are full; may be empty."""

    @abstractmethod
    def refusal(self, lane: str) -> RouterError | None:
        """The error for tickets of a lane that no replica will ever serve; `None`: one may. Called
        only while no replica is fit for the lane."""

    @abstractmethod
    def absent_since(self, lane: str) -> float:
        """The time since which no replica is fit for this lane; infinity: one is fit."""

    @abstractmethod
    def serves(self, place: ReplicaLoad, lane: str) -> bool:
        """Whether a replica is fit for this lane. Called for every waiting lane, so it must be
        quick."""

    @abstractmethod
    def held(self, view: RequestView) -> Mapping[ReplicaLoad, int]:
        """The number of leading blocks of a prompt that each replica holds now; absent: 0. A call
        costs microseconds."""

    @abstractmethod
    def slots(self, place: ReplicaLoad) -> float | None:
        """The number of requests an engine runs at once, reported or learned; `None`: unknown.
        Called again after every poll."""

    @abstractmethod
    def guess(self, place: ReplicaLoad) -> float:
        """A guess of the slots of an engine whose slots are unknown: the requests it may be sent
        before a poll shows how many of them run. Called again after every poll."""

    @abstractmethod
    def is_blind(self, place: ReplicaLoad) -> bool:
        """Whether an engine reports no metrics, or only outdated ones. False before the first poll
        could return. Called again after every poll, successful or not."""
