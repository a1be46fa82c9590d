"""The outcomes of streams that broke after their first content, used as metric labels."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    __hash__ = str.__hash__  # Faster than the hash of `Enum`; see core.errors.Reason.

    CONTINUED = "continued"  # Another replica continued the stream with content.
    # The other outcomes are reasons why there was no continuation.
    REQUEST = "request"  # The request has members with which a continuation may be incorrect.
    STREAM = "stream"  # The stream contains data with which a continuation may be incorrect.
    FINISHED = "finished"  # Only the end of the stream was missing.
    LENGTH = "length"  # The request's limit of output tokens is used up.
    SIZE = "size"  # The text is longer than the router may keep.
    BUDGET = "budget"  # The limit of attempts is reached, or the retry budget is used up.
    NO_REPLICA = "no_replica"  # No other replica can continue the stream.
    FAILED = "failed"  # Another replica was asked and did not continue the stream.
