"""Recognises text by its first bytes."""

from __future__ import annotations

from typing import Final

# Bytes that may precede the first character of a text: white space, byte order marks, and the zeros
# of UTF-16 and UTF-32.
_PADDING: Final = b" \t\r\n\0\xef\xbb\xbf\xff\xfe"


def is_text(pieces: list[bytes]) -> bool:
    """Return whether a body begins like a JSON object or a form, in UTF-8, UTF-16 or UTF-32.

    Such a body is not compressed, whatever its Content-Encoding is. vLLM and SGLang ignore
    Content-Encoding, so they read the body. No compressed format that is in use begins so.
    """
    for piece in pieces:
        begin = piece.lstrip(_PADDING)
        if begin:
            return begin.startswith((b"{", b"--"))
    return False
