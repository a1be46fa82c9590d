"""Makes a text from a stranger safe for a terminal, a page or a file name."""

from __future__ import annotations


def printable(text: str, instead: str = "?") -> str:
    """Return the text with `instead` in place of each character that cannot be printed."""
    return "".join(char if char.isprintable() else instead for char in text)
