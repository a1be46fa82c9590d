"""What the end of a request teaches the admission queue of the replica that had it.

Must never: look at more than the reason.
"""

from __future__ import annotations

from typing import Final

from router.admission.queue import CANCELLED, DONE, REFUSED
from router.core.errors import Reason

# A replica that was asked for too much, not for something it could not do.
_NO_ROOM: Final = frozenset({Reason.REPLICA_BUSY, Reason.TTFT_TIMEOUT})


def queue_outcome(reason: Reason) -> int:
    """DONE, CANCELLED or REFUSED, for `settle` and `passed`."""
    if reason is Reason.OK:
        return DONE
    return REFUSED if reason in _NO_ROOM else CANCELLED
