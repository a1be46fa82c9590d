"""The outcome of a stream that broke after its first content. A closed set: metric labels."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    __hash__ = str.__hash__  # See core.errors.Reason.

    CONTINUED = "continued"  # Another replica's content follows.
    # The other outcomes are reasons why there was no continuation.
    REQUEST = "request"  # The request has unknown members, or members that it could break.
    STREAM = "stream"  # The stream contained unknown data, or data that it could break.
    FINISHED = "finished"  # Only the end of the stream was missing.
    LENGTH = "length"  # The request's token limit is used up.
    SIZE = "size"  # There is more text than is kept.
    BUDGET = "budget"  # No retry is left, by number or by the retry budget.
    NO_REPLICA = "no_replica"  # No other replica can continue the stream.
    FAILED = "failed"  # Another replica was asked and did not continue the stream.
