"""Computes when the health of the replicas of a fleet must be checked next.

Pure. Must never: change a replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from router.fleet.replica import Replica
from router.wire.sweep import NEVER

# Seconds between two checks of a replica that is suspect, or that was ejected because it generated
# nothing.
SUSPICION_S: Final = 1.0
WARMING_S: Final = 0.5  # Seconds between two updates of a replica's weight while it is lowered.


def next_check(replicas: Iterable[Replica], now: float) -> float:
    """Return the time of the next check (monotonic seconds); NEVER: none is needed.

    A check is due at the end of an ejection or a pause, and repeatedly during a suspicion or while
    a weight is lowered.
    """
    due: list[float] = []
    for replica in replicas:
        health = replica.health
        if health.ejected_until:
            due.append(health.ejected_until)
            if health.zombie:
                due.append(now + SUSPICION_S)
        if health.is_busy(now):
            due.append(health.busy_until)
        if health.is_suspect(now):
            due.append(now + SUSPICION_S)
        if health.factor(now) < 1.0:
            due.append(now + WARMING_S)
    return min(due) if due else NEVER
