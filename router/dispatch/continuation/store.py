"""How much text is kept for continuations: so many bytes of one stream, so many of all together.

What is taken is given back when its stream ends, whatever ends it.
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
        """New caps from a reload; what is kept stays."""
        self.each = rules.text  # bytes of one stream's text
        self._total = rules.text_total

    def take(self, size: int) -> bool:
        """Room for `size` more bytes; False: there is none."""
        if self.held + size > self._total:
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        self.held -= size
