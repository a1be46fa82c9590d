"""Limits the text that is kept for continuations: bytes per stream, and bytes in total.

A stream's bytes are released when the stream ends, whatever ends it. The store also counts the
outcomes of broken streams.

`Outcome`: the outcomes of streams that broke after their first content, used as metric labels.
"""

from __future__ import annotations

from enum import StrEnum

from router.config.model import Continuation as Rules


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


class Store:
    """Counts the bytes of text that all streams of one router keep."""

    __slots__ = ("_total", "attempts", "each", "held", "outcomes")

    def __init__(self, rules: Rules) -> None:
        self.held = 0
        self.outcomes: dict[str, int] = {}  # The number of broken streams, by `Outcome`.
        self.adopt(rules)

    def adopt(self, rules: Rules) -> None:
        """Apply the limits of a reloaded configuration. Text that is already kept stays."""
        self.each = rules.text  # Maximum bytes of the kept text of one stream.
        self._total = rules.text_total
        self.attempts = rules.attempts  # Maximum number of continuations of a new stream.

    def take(self, size: int) -> bool:
        """Reserve `size` more bytes for a stream's text. Returns False if the limit is reached."""
        if self.held + size > self._total:
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        self.held -= size

    def count(self, outcome: Outcome) -> None:
        """Count one broken stream."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
