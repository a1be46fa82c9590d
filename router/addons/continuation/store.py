"""Limits the text that is kept for continuations: bytes per stream, and bytes in total.

A stream's bytes are released when the stream ends, whatever ends it. The store also counts the
outcomes of broken streams.
"""

from __future__ import annotations

from router.addons.continuation.outcome import Outcome
from router.config.model import Continuation as Rules


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
