"""Reads the chunked body of a request (RFC 9112 section 7.1), and validates heads with llhttp.

The parser gets the bytes up to the next index at which the body can end. Then the parser reports
whether the body has ended. So it never gets a byte of the next request. This file finds these
indexes: it reads the chunk sizes to skip the data of the chunks, which may contain CRLF CRLF. The
parser reads the same sizes and validates all other bytes.

Must never: join or keep more than the chunks of one read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import httptools

from router.core.errors import Reason, RouterError
from router.wire.turn import CHUNK, Turn

_END: Final = b"\r\n\r\n"
# A head after which a parser reads a chunked body.
_PLAIN_HEAD: Final = b"POST / HTTP/1.1\r\nhost: -\r\ntransfer-encoding: chunked\r\n\r\n"

# A chunked body may have 16 bytes of overhead for each chunk, and this many bytes beyond. Overhead
# is chunk-size lines, extensions and trailers (RFC 9112 section 7.1.1).
CHUNK_OVERHEAD: Final = 16 * 1024

# The number of bytes of a chunk-size line that are kept between two reads: sixteen digits, the CR,
# and one more byte, with which a longer size is detected.
_SIZE_LINE: Final = 18
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,17}")


class ChunkedBody:
    """The parser of one request: first of its head, then of its body if the body is chunked."""

    __slots__ = (
        "_chunks",
        "_left",
        "_line",
        "_parser",
        "_slack",
        "_tail",
        "_turn",
        "is_over",
        "on_body",
    )

    on_body: Callable[[bytes], None]

    def __init__(self, turn: Turn | None) -> None:
        """`turn`: limits the chunks that are read in one turn of the event loop; None: no limit."""
        self._turn = turn
        self._chunks: list[bytes] = []
        self.on_body = self._chunks.append  # the parser, which is written in C, calls `on_body`
        self._parser: Any = httptools.HttpRequestParser(self)
        self._slack = CHUNK_OVERHEAD
        self._left = 0  # the bytes of the present chunk that have not arrived
        self._line = b""  # the beginning of a chunk-size line
        # Not empty after the last chunk: the latest bytes received, at most three, which may be the
        # beginning of the CRLF CRLF that ends the body.
        self._tail = b""
        self.is_over = False

    def close(self) -> None:
        """Releases the parser, because the parser and this object refer to each other."""
        self._parser = None

    def validate(self, piece: bytes) -> None:
        """Parses a piece of the head. Raises the exceptions of httptools."""
        self._parser.feed_data(piece)

    def begin(self) -> None:
        """Called between the head and the body."""
        if self._parser.should_upgrade():
            # The upgrade is ignored (RFC 9110 section 7.8), but this parser would read no body.
            self.is_over = False
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(_PLAIN_HEAD)

    def on_message_complete(self) -> None:
        self.is_over = True

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """Reads bytes of the body. Returns the data of its chunks, and how many bytes were read.

        Bytes remain if the body has ended (`is_over`), or if the work of the turn is used up.
        """
        turn, chunks = self._turn, self._chunks
        at = 0
        size = len(data)
        while at < size and not self.is_over:
            if turn is not None and turn.left <= 0:
                break
            end = self._may_end(data, at)
            piece = data[at:end] if at or end != size else data
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserError as err:
                raise RouterError(Reason.BAD_REQUEST, f"unreadable chunked body: {err}") from None
            at = end
            self._slack -= len(piece)
        body = b"".join(chunks) if len(chunks) != 1 else chunks[0]
        self._slack += len(body) + 16 * len(chunks)
        chunks.clear()
        if self._slack < 0:
            raise RouterError(Reason.BAD_REQUEST, "too much chunk overhead")
        # Overhead that earlier chunks did not use is not saved for later chunks. Otherwise a later
        # chunk could have an extension of any size.
        self._slack = min(self._slack, CHUNK_OVERHEAD)
        return body, at

    def _may_end(self, data: bytes, at: int) -> int:
        """Return the first index after `at` where the body can end, or the end of `data`.

        Returns an index between two chunks if the work of the turn is used up.

        The body ends with the first CRLF CRLF after the chunk of size 0.
        """
        size = len(data)
        left = self._left
        turn = self._turn
        while not self._tail:
            if left >= size - at:
                self._left = left - (size - at)
                return size
            at += left
            end = data.find(b"\n", at)
            if end < 0:
                self._left = 0
                if len(self._line) < _SIZE_LINE:
                    self._line += data[at : at + _SIZE_LINE]
                return size
            line = data[at:end]
            if self._line:
                line = self._line + line
                self._line = b""
            at = end + 1
            left = _chunk_size(line)
            if left:
                left += 2  # the CRLF after the chunk's data
                if turn is not None:
                    turn.spend(CHUNK)
                    if turn.left <= 0:
                        self._left = left
                        return at
            else:
                self._left = 0
                self._tail = _END[:2]
        # Earlier data may have ended inside the CRLF CRLF that ends the body. Then at most three
        # more bytes complete it.
        tail = self._tail
        across = (tail + data[at : at + 3]).find(_END)
        if across >= 0:
            return at + across + 4 - len(tail)
        found = data.find(_END, at)
        end = found + 4 if found >= 0 else size
        self._tail = (tail + data[at:end])[-3:]
        return end


def _chunk_size(line: bytes) -> int:
    """Return the size in a chunk-size line, which is passed without its line feed."""
    digits = line.partition(b";")[0] if len(line) > 2 else line
    digits = digits.removesuffix(b"\r")
    if _CHUNK_SIZE.fullmatch(digits) is None:  # `int` would accept `1_0`, ` 1` and `0x1`.
        raise RouterError(Reason.BAD_REQUEST, "unreadable chunked body: no size of a chunk")
    return int(digits, 16)
