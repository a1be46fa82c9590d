"""Frames bytes as chunks of a chunked body (RFC 9112, section 7.1).

Compiled, and called for every token. Most of the time would be needed to format the size, so the
size lines of all small chunks are made in advance.
"""

from __future__ import annotations

from typing import Final

_SIZE_LINES: Final = [b"%x\r\n" % size for size in range(512)]


def chunk(data: bytes) -> bytes:
    """Return `data`, which must not be empty, as one chunk."""
    size = len(data)
    line = _SIZE_LINES[size] if size < len(_SIZE_LINES) else b"%x\r\n" % size
    return b"%b%b\r\n" % (line, data)
