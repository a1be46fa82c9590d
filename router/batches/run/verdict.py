"""Decides what the router's answer to a line means for the line. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Verdict(Enum):
    DONE = "done"  # the answer goes into the output file
    FAILED = "failed"  # the answer goes into the error file; the line is not sent again
    AGAIN = "again"  # a failure: the line is sent again a few times
    BUSY = "busy"  # no capacity: the line is sent again until the batch expires


BACKOFF_S: Final = 1.0  # first backoff in seconds; doubled with each attempt
BACKOFF_MAX_S: Final = 60.0

_BUSY = frozenset({429, 503})
_AGAIN = frozenset({408, 425, 499, 500, 502, 504, 507, 508})


def judge(status: int) -> Verdict:
    """Returns the verdict for an HTTP status. An error that is not temporary is final."""
    if 200 <= status < 300:
        return Verdict.DONE
    if status in _BUSY:
        return Verdict.BUSY
    return Verdict.AGAIN if status in _AGAIN else Verdict.FAILED


def backoff_s(attempts: int, chance: float) -> float:
    """Seconds to wait after this many attempts (from 1); `chance` in 0..1 spreads the retries."""
    return min(BACKOFF_S * 2.0 ** min(attempts - 1, 16), BACKOFF_MAX_S) * (0.5 + chance / 2)
