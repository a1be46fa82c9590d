"""Limits the text that is kept for continuations: bytes per stream, and bytes in total.

A stream's bytes are released when the stream ends, whatever ends it.
"""

from __future__ import annotations

from router.config.model import Continuation as Rules


class Store:
    """Counts the bytes of text that all streams of one router keep."""

    __slots__ = ("_total", "each", "held")

    def __init__(self, rules: Rules) -> None:
        self.held = 0
        self.adopt(rules)

    def adopt(self, rules: Rules) -> None:
        """Apply the limits of a reloaded configuration. Text that is already kept stays."""
        self.each = rules.text  # Maximum bytes of the kept text of one stream.
        self._total = rules.text_total

    def take(self, size: int) -> bool:
        """Reserve `size` more bytes for a stream's text. Returns False if the limit is reached."""
        if self.held + size > self._total:
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        self.held -= size
