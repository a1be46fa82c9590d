"""Detects whether two replicas may be the same engine under two addresses, from their metrics.

An engine reports the start time of its process, to the hundredth of a second. Two replicas with the
same start time are either one engine or two engines that one script started together. The totals of
one engine never decrease, whichever address they are read from. If a poll shows a total below the
total that the other address had reported before this poll was sent, the two replicas are different
engines. This result is final.

Must never: treat a missing value as a proof, or compare answers whose order in time is unknown.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from router.fleet.monitor.signal_changes import went_back
from router.fleet.replica import Replica
from router.fleet.signals import Signals

# Maximum number of replicas with the same start time that one replica is compared with.
MOST: Final = 32


class SameEngine:
    """The replicas of one fleet, grouped by the start time that their engines report."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: dict[float, dict[Replica, None]] = {}

    def observed(self, replica: Replica, before: Signals) -> None:
        """Compare a replica with others after a poll.

        `replica.last_signals` has the new signals, `before` the previous ones.
        """
        signals = replica.last_signals
        moment = signals.started_at
        if moment != before.started_at:
            self._leave(replica, before.started_at)
            if moment:  # The value 0 is not a start time.
                self._begun.setdefault(moment, {})[replica] = None
        if not moment:
            return
        for other in islice(self._begun.get(moment, ()), MOST):
            if (
                other is not replica
                and other not in replica.apart
                and other.signals_at <= replica.asked_at
                and went_back(other.last_signals, signals)
            ):
                replica.apart.add(other)
                other.apart.add(replica)

    def remove(self, replica: Replica) -> None:
        """Forget a replica that has left the fleet."""
        self._leave(replica, replica.last_signals.started_at)

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
