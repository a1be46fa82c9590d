"""Compares polls of metrics: successive ones of one engine, and those of two addresses.

Two addresses may lead to the same engine (`SameEngine`). An engine reports the start time of its
process, to the hundredth of a second. Two replicas with the same start time are either one engine
or two engines that one script started together. The totals of one engine never decrease, whichever
address they are read from. If a poll shows a total below the total that the other address had
reported before this poll was sent, the two replicas are different engines. This result is final.

This file is separate from `signals.py`, because this file is compiled and `Signals` cannot be
compiled.

Must never: treat a missing value as a proof, or compare answers whose order in time is unknown.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from router.fleet.replica import Replica
from router.fleet.signals import Signals

# Tolerance in seconds for the reported start time: a change of the engine's clock is not a restart.
_CLOCK_S: Final = 1.0


def went_back(before: Signals, after: Signals) -> bool:
    """Return whether a total has decreased. A running engine never reports a decreased total."""
    return (
        _less(before.prompt_tokens, after.prompt_tokens)
        or _less(before.generated_tokens, after.generated_tokens)
        or _less(before.cache_queries, after.cache_queries)
        or _less(before.cache_hits, after.cache_hits)
        or _less(before.preemptions, after.preemptions)
    )


def restarted(before: Signals, after: Signals) -> bool:
    """Return whether the engine restarted between the polls: a total decreased, or the start time
    is later."""
    if went_back(before, after):
        return True
    if before.started_at is None or after.started_at is None:
        return False
    return after.started_at > before.started_at + _CLOCK_S


def has_worked(before: Signals, after: Signals) -> bool:
    """Return whether the engine computed something between the two polls.

    The signs of work are: a total has grown, or more of the KV cache is in use. If the engine
    reports no generated tokens, there is another sign: fewer requests run or wait than before.
    """
    if _less(after.generated_tokens, before.generated_tokens):
        return True
    if _less(after.prompt_tokens, before.prompt_tokens):
        return True
    was, usage = before.kv_usage, after.kv_usage
    if was is not None and usage is not None and usage > was:
        return True
    if after.generated_tokens is not None:
        return False  # Requests also leave a hanging engine, when their clients disconnect.
    return _less(before.running, after.running) or _less(before.waiting, after.waiting)


def _less(before: int | None, after: int | None) -> bool:
    """Return whether a count is known in both polls and has decreased."""
    return before is not None and after is not None and after < before


# Maximum number of replicas with the same start time that one replica is compared with.
MOST: Final = 32


class SameEngine:
    """The replicas of one fleet, grouped by the start time that their engines report."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: dict[float, dict[Replica, None]] = {}

    def observed(self, replica: Replica, before: Signals) -> None:
        """Compare a replica with others after a poll.

        `replica.reports.last` has the new signals, `before` the previous ones.
        """
        signals = replica.reports.last
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
                and other not in replica.reports.apart
                and other.reports.at <= replica.endpoint.asked_at
                and went_back(other.reports.last, signals)
            ):
                replica.reports.apart.add(other)
                other.reports.apart.add(replica)

    def remove(self, replica: Replica) -> None:
        """Forget a replica that has left the fleet."""
        self._leave(replica, replica.reports.last.started_at)

    def _leave(self, replica: Replica, moment: float | None) -> None:
        group = self._begun.get(moment) if moment else None
        if not group or replica not in group:
            return
        del group[replica]
        if not group and moment:
            del self._begun[moment]
        for other in group:
            other.reports.apart.discard(replica)
        replica.reports.apart.clear()
