"""Limits the text that is kept for continuations: bytes per stream, and bytes in total.

The bytes of a stream are released when it ends, in every case.
"""

from __future__ import annotations

from router.config.model import Continuation as Rules


class Store:
    """The bytes kept by all streams of one router."""

    __slots__ = ("_total", "each", "held")

    def __init__(self, rules: Rules) -> None:
        self.held = 0
        self.adopt(rules)

    def adopt(self, rules: Rules) -> None:
        """Apply new limits from a reload. Kept bytes stay."""
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
