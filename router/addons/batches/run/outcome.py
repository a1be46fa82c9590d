"""Turns the router's response to a batch line into a verdict and a line of a result file."""

from __future__ import annotations

from router.addons.batches.api.shapes import answered, as_json, unanswered
from router.addons.batches.run.sender import NO_ANSWER, Answer
from router.addons.batches.run.verdict import Verdict, judge


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
