"""The outcome that the end of a request reports to the admission queue for its replica.

Must never: look at more than the reason.
"""

from __future__ import annotations

from typing import Final

from router.admission.queue import CANCELLED, DONE, REFUSED
from router.core.errors import Reason

# The replica got more requests than it could handle; it did not fail.
_NO_ROOM: Final = frozenset({Reason.REPLICA_BUSY, Reason.TTFT_TIMEOUT})


def queue_outcome(reason: Reason) -> int:
    """Return DONE, CANCELLED or REFUSED, for `settle` and `passed`."""
    if reason is Reason.OK:
        return DONE
    return REFUSED if reason in _NO_ROOM else CANCELLED
