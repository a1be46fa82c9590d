"""Prefers spot replicas for batch requests, and other replicas for critical requests.

A spot machine can be reclaimed at short notice. A second attempt delays a request, which matters
for critical requests, but not for batch requests. The preference applies only among replicas on
which no request waits for its first token. So it never makes a request wait, and never leaves a
request without a replica. In a fleet of several regions, the candidates are the replicas of the
chosen region.

Must never: run while no replica is a spot replica (the chooser checks it), or remove the last
candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.core.urgency import BATCH, CRITICAL
from router.fleet.replica import Replica


def preferred(candidates: Sequence[Replica], urgency: int) -> Sequence[Replica]:
    """Return the candidates that the class `urgency` prefers; all candidates if there are none."""
    if urgency == BATCH:
        wants_spot = True
    elif urgency == CRITICAL:
        wants_spot = False
    else:
        return candidates
    found = [r for r in candidates if r.is_spot == wants_spot and not r.waiting]
    return found or candidates
