"""Decides what the router's response to a batch line means for the line."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Verdict(Enum):
    DONE = "done"  # success: the response is written to the output file
    FAILED = "failed"  # final error: the response is written to the error file
    AGAIN = "again"  # temporary error: the line is sent again, up to `batches.attempts` times
    BUSY = "busy"  # the fleet has no capacity: the line is sent again until the batch expires


BACKOFF_S: Final = 1.0  # seconds before the first retry; the time doubles with each attempt
BACKOFF_MAX_S: Final = 60.0

_BUSY = frozenset({429, 503})
_AGAIN = frozenset({408, 425, 499, 500, 502, 504, 507, 508})


def judge(status: int) -> Verdict:
    """Return the verdict for an HTTP status. An error that is not temporary is final."""
    if 200 <= status < 300:
        return Verdict.DONE
    if status in _BUSY:
        return Verdict.BUSY
    return Verdict.AGAIN if status in _AGAIN else Verdict.FAILED


def backoff_s(attempts: int, chance: float) -> float:
    """Return the seconds to wait after this many attempts (from 1).

    `chance` is a random number from 0 to 1, so that lines are not sent again all at once.
    """
    return min(BACKOFF_S * 2.0 ** min(attempts - 1, 16), BACKOFF_MAX_S) * (0.5 + chance / 2)
