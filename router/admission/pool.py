"""The interface through which the queue reads the fleet.

The queue also reads the replicas' loads (`core/replica_load.py`). The queue must never change these
loads. An unknown fact is `None`, never 0.
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

    # This number changes when a call of `closed_to` for one replica changes the answers for other
    # replicas.
    plan_changes: int = 0

    @abstractmethod
    def eligible(self, lane: str) -> Sequence[ReplicaLoad]:
        """Return the replicas that may serve the tickets of a lane now, including full ones; may be
        empty."""

    @abstractmethod
    def refusal(self, lane: str) -> RouterError | None:
        """Return the error for the tickets of a lane if no replica will ever serve them.

        `None`: a replica may serve them later. This is called only while no replica is fit for the
        lane.
        """

    @abstractmethod
    def absent_since(self, lane: str) -> float:
        """Return the time since which no replica may serve this lane; infinity: a replica may serve
        it."""

    @abstractmethod
    def serves(self, place: ReplicaLoad, lane: str) -> bool:
        """Whether a replica may serve the tickets of this lane now.

        This is called for every lane with waiting tickets, so it must be fast.
        """

    def closed_to(self, place: ReplicaLoad, leaving: int = -1) -> int:
        """Return the classes that the routing policy keeps away from a replica now, as bits:
        1 << class; 0: none.

        This is called after every change of the replica's facts. `leaving`: the answer is for the
        time after a request of this class has left the replica; -1: no request leaves.
        """
        return 0

    @abstractmethod
    def held(self, view: RequestView) -> Mapping[ReplicaLoad, int]:
        """Return the number of leading blocks of a prompt that each replica holds now.

        A replica that is not in the result holds no block of the prompt. A call takes microseconds.
        """

    @abstractmethod
    def slots(self, place: ReplicaLoad) -> float | None:
        """Return the number of requests that an engine runs at once; `None`: unknown.

        The number is reported by the engine or learned. This is called again after every poll.
        """

    @abstractmethod
    def guess(self, place: ReplicaLoad) -> float:
        """Return a guess of an engine's unknown number of slots.

        That many requests may be sent to the engine before a poll shows how many of them run. This
        is called again after every poll.
        """

    @abstractmethod
    def is_blind(self, place: ReplicaLoad) -> bool:
        """Whether an engine reports no metrics, or its last metrics are too old.

        The result is False until the first poll has ended. This is called again after every poll,
        successful or not.
        """
