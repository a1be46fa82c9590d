"""Decides what the router's response to a batch line means for the line.

`outcome_of`: turns the router's response to a batch line into a verdict and a line of a result
file.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from router.addons.batches.api.shapes import answered, as_json, unanswered
from router.addons.batches.run.sender import NO_ANSWER, Answer


def outcome_of(
    request_id: str, custom_id: str, answer: Answer, is_last: bool
) -> tuple[Verdict, bytes]:
    """Return the verdict on a batch line, and its line of the result file.

    The line of the result file is b"" if the batch line is sent again. If `is_last`, the batch line
    is not sent again, except for the verdict BUSY. For a response of some megabytes, the call takes
    milliseconds.
    """
    if answer.problem:
        if answer.status == NO_ANSWER:
            verdict, code = Verdict.AGAIN, "no_answer"
        else:
            verdict, code = Verdict.FAILED, "response_too_large"
        return verdict, unanswered(request_id, custom_id, code, answer.problem)
    verdict = judge(answer.status)
    if verdict is Verdict.BUSY:
        return verdict, b""
    body = as_json(answer.body)
    if body is None and verdict is Verdict.DONE:
        verdict = Verdict.AGAIN
    if verdict is Verdict.AGAIN and not is_last:
        return verdict, b""
    shown = answer.body.decode("utf-8", "replace") if body is None else body
    return verdict, answered(request_id, custom_id, answer.status, shown)


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
