"""Frames bytes as chunks of a chunked body (RFC 9112, section 7.1).

Compiled; runs for every token. Formatting the size takes longer than the two concatenations, so the
size lines of most tokens are made once.
"""

from __future__ import annotations

from typing import Final

_SIZE_LINES: Final = [b"%x\r\n" % size for size in range(512)]


def chunk(data: bytes) -> bytes:
    """Return `data`, which must not be empty, as one chunk."""
    size = len(data)
    line = _SIZE_LINES[size] if size < len(_SIZE_LINES) else b"%x\r\n" % size
    return b"%b%b\r\n" % (line, data)
