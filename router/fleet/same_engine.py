"""Whether two replicas may be one engine under two addresses, as far as their metrics show.

An engine says when its process was started, to the hundredth of a second. Two replicas of the same
moment are one engine, or two that one script started together. The totals of one engine never go
back, by whichever address they are read: where a poll says less than what the other address had
said before that poll was asked, they are two, for good.

Must never: take silence, or what may have crossed on its way, for a proof.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from router.fleet.replica import Replica
from router.fleet.signal_changes import went_back
from router.fleet.signals import Signals

MOST: Final = 32  # replicas of one moment that are compared with another


class SameEngine:
    """The replicas of one fleet by the moment at which they say they were started."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: dict[float, dict[Replica, None]] = {}

    def observed(self, replica: Replica, before: Signals) -> None:
        """A poll came back and stands in `replica.told`; `before`: what stood there."""
        told = replica.told
        moment = told.started_at
        if moment != before.started_at:
            self._leave(replica, before.started_at)
            if moment:  # at 0 nothing was started
                self._begun.setdefault(moment, {})[replica] = None
        if not moment:
            return
        for other in islice(self._begun.get(moment, ()), MOST):
            if (
                other is not replica
                and other not in replica.apart
                and other.signals_at <= replica.asked_at
                and went_back(other.told, told)
            ):
                replica.apart.add(other)
                other.apart.add(replica)

    def remove(self, replica: Replica) -> None:
        """It has left the fleet."""
        self._leave(replica, replica.told.started_at)

    def _leave(self, replica: Replica, moment: float | None) -> None:
        group = self._begun.get(moment) if moment else None
        if not group or replica not in group:
            return
        del group[replica]
        if not group and moment:
            del self._begun[moment]
        for other in replica.apart:
            other.apart.discard(replica)
        replica.apart.clear()
