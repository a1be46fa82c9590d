"""Decides when the content of a watched file is used. Pure.

A program that does not replace the file by a rename may be in the middle of writing it, and a part
of a YAML list is often a valid list. So a changed content is used only if the next look finds the
same content.
"""

from __future__ import annotations


class Stable:
    """The contents of one file."""

    def __init__(self) -> None:
        self._seen: bytes | None = None  # The content at the last look.
        self._used: bytes | None = None  # The content that is in use; `None`: none is.
        self._is_first = True  # No content was ever used.

    def is_new(self, content: bytes) -> bool:
        """Return whether this content is to be used now.

        The first content is used at once, because the router has nothing else.
        """
        is_same = self._is_first or content == self._seen
        self._seen = content
        if not is_same or content == self._used:
            return False
        self._used = content
        self._is_first = False
        return True

    def again(self) -> None:
        """Let the content in use count as new, because its meaning may have changed."""
        self._used = None

    def lost(self) -> None:
        """Record a look that found no content."""
        self._seen = None
