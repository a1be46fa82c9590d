"""Maps the reason of a request's end to the outcome that the admission queue gets.

Must never: use anything but the reason of the end.
"""

from __future__ import annotations

from typing import Final

from router.admission.outcomes import CANCELLED, DONE, REFUSED
from router.core.errors import Reason

# These reasons mean that the replica was overloaded; it did not fail.
_NO_ROOM: Final = frozenset({Reason.REPLICA_BUSY, Reason.TTFT_TIMEOUT})


def queue_outcome(reason: Reason) -> int:
    """Return DONE, CANCELLED or REFUSED, for `settle` and `passed`."""
    if reason is Reason.OK:
        return DONE
    return REFUSED if reason in _NO_ROOM else CANCELLED
