"""Learns how many requests other clients of the engines have for each request of this router.

Several routers may share one fleet. They do not know each other: a router sees the requests of the
others only as foreign load in the engines' metrics (`core/lease.py`). The ratio is used where a
decision must fit the traffic of all routers together. A router that is alone learns 0.

Each poll of a replica is one sample. The means of the own and of the foreign load are updated with
the weight `WEIGHT`, so about the last 100 polls of all replicas decide. The ratio of the means is
used, because a router of many may have no request at a single replica.

Must never: count requests itself, or read a clock.
"""

from __future__ import annotations

from typing import Final

WEIGHT: Final = 0.01  # the weight of one poll of one replica in the means
_LEAST: Final = 0.01  # a lower mean of the own load, in requests per replica, counts as this mean


class PeerLoad:
    """The mean load of the replicas that one queue uses, own and foreign."""

    __slots__ = ("_foreign", "_own")

    def __init__(self) -> None:
        self._own = 0.0
        self._foreign = 0.0

    def polled(self, own: int, foreign: int) -> None:
        """Learn from a poll of one replica. `own`, `foreign`: its numbers of requests."""
        self._own += WEIGHT * (float(own) - self._own)
        self._foreign += WEIGHT * (float(foreign) - self._foreign)

    @property
    def ratio(self) -> float:
        """The foreign requests per request of this router; 0: no other client is known."""
        return self._foreign / max(self._own, _LEAST)
