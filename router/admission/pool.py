"""What the queue asks of the fleet that stands behind it.

The queue reads the replicas' loads (`core/replica_load.py`) and changes nothing of them. An unknown
fact is None, never 0.
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
        """Those that are fit for this lane now, whether or not they have room; may be empty."""

    @abstractmethod
    def refusal(self, lane: str) -> RouterError | None:
        """The error for tickets of a lane that no replica will ever serve; None: one may. Asked
        while none is fit for the lane."""

    @abstractmethod
    def absent_since(self, lane: str) -> float:
        """Since when none is fit for this lane; infinity: one is."""

    @abstractmethod
    def serves(self, place: ReplicaLoad, lane: str) -> bool:
        """Whether the place is among them. Asked for every lane that waits: quick."""

    @abstractmethod
    def held(self, view: RequestView) -> Mapping[ReplicaLoad, int]:
        """Leading blocks of a prompt by replica, as they are held now; absent: none. Costs
        microseconds."""

    @abstractmethod
    def slots(self, place: ReplicaLoad) -> float | None:
        """Requests its engine runs at once, told or learned; None: nobody knows. Asked again after
        every poll."""

    @abstractmethod
    def guess(self, place: ReplicaLoad) -> float:
        """Where nobody knows: requests that it may be sent before a poll shows what it does with
        them. Asked again after every poll."""

    @abstractmethod
    def is_blind(self, place: ReplicaLoad) -> bool:
        """Whether its engine tells nothing, or nothing that is new enough to be believed; not
        before a first poll could tell. Asked again after every poll, whether it told anything or
        not."""
