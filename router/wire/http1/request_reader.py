"""Reads one request at a time from a client's bytes: finds where it ends, and enforces limits.

Rules:
1. The C parser (llhttp) validates the syntax; this file enforces the limits. The parser gets no
   byte of a second request while the first is incomplete, because the input is cut where a request
   can end. A head ends with CRLF CRLF. A chunked body ends with CRLF CRLF after its last chunk. Any
   other body ends after the number of bytes in Content-Length. Later bytes are kept in `early`.
2. Ambiguous input is refused (RFC 9112 sections 2.2, 3, 6). There is no lenient mode.
3. This file uses no socket. Each refusal raises a RouterError, after which the reader is unusable.

llhttp does not check sizes and trailers, so this file does.
`request_fields.py` checks and sorts the fields of a head.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

import httptools

from router.config.model import Limits
from router.core.errors import Reason, RouterError
from router.wire.http1.body_decoder import WINDOW, BodyDecoder
from router.wire.http1.headers import value_of
from router.wire.http1.heads import RequestHead
from router.wire.http1.plans import Known, Plans
from router.wire.http1.request_fields import sort_fields
from router.wire.turn import CHUNK, Turn

# The states of a reader.
HEAD: Final = 0  # waiting for a head, or inside a head
SIZED: Final = 1  # inside a body with a Content-Length
CHUNKED: Final = 2
COMPLETE: Final = 3  # the request has been read; later bytes are kept in `early`
DECODES: Final = 5  # the body has been read, but not all of it is decoded; later bytes are kept
PASSES: Final = 4  # the head has been read; another protocol, a `Tunnel`, will read the body

_END: Final = b"\r\n\r\n"
# A head after which a parser reads a chunked body.
_PLAIN_HEAD: Final = b"POST / HTTP/1.1\r\nhost: -\r\ntransfer-encoding: chunked\r\n\r\n"

_PIECE: Final = 16 * 1024  # pieces of a body that are smaller than this many bytes are joined

# A chunked body may have 16 bytes of overhead for each chunk, and this many bytes beyond. Overhead
# is chunk-size lines, extensions and trailers (RFC 9112 section 7.1.1).
CHUNK_OVERHEAD: Final = 16 * 1024

# The number of bytes of a chunk-size line that are kept between two reads: sixteen digits, the CR,
# and one more byte, with which a longer size is detected.
_SIZE_LINE: Final = 18
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,17}")

_WORD = re.compile(rb"[A-Za-z-]{1,32}(?: |\Z)")  # the beginning of a line that may be a method

_BLANK: Final = 16  # maximum bytes of empty lines before a request (RFC 9112 section 2.2)
_CR: Final = 13
_BRACE: Final = 0x7B


# The value of `head` until a head has arrived. All readers share it, so it must not be changed.
_UNREAD: Final = RequestHead()


class RequestReader:
    """Reads the requests of one client connection.

    `on_head` is called after each head. It may raise RouterError to refuse the request before its
    body is read.
    """

    __slots__ = (
        "_blank",
        "_body",
        "_body_most",
        "_carry",
        "_chunked_slack",
        "_chunks",
        "_done",
        "_latest",
        "_left",
        "_limits",
        "_line",
        "_line_whole",
        "_on_head",
        "_parser",
        "_plans",
        "_small",
        "_tail",
        "_turn",
        "body_bytes",
        "early",
        "head",
        "on_body",
        "state",
        "via",
    )

    _chunks: list[bytes]  # set together with `_parser`
    on_body: Callable[[bytes], None]

    def __init__(
        self,
        limits: Limits,
        via: bytes,
        on_head: Callable[[RequestHead], None],
        plans: Plans[RequestHead] | None = None,
        turn: Turn | None = None,
    ) -> None:
        """`turn`: limits the chunks that are read in one turn of the event loop; None: no limit."""
        self._limits = limits
        self._turn = turn
        self._body_most = limits.body
        self._plans = Plans[RequestHead]() if plans is None else plans
        # The previous head of this connection if it was a remembered head (see `plans.py`).
        self._latest: Known[RequestHead] | None = None
        self._on_head = on_head
        # the router's own name; a request whose Via header has this name is in a loop
        self.via = via.lower()
        self.early = b""
        self.reset()

    def reset(self) -> None:
        """Prepares for the next request of the connection. The bytes in `early` are kept."""
        self.state = HEAD
        self.head = _UNREAD
        self._parser: Any = None  # created only if the head is not a remembered head
        self._carry: bytearray | None = None  # the beginning of a head that arrives in pieces
        self._line_whole = False
        self._blank = 0  # the bytes of empty lines before the head
        self._body: list[bytes] | None = None  # the pieces of the body that have arrived
        # The latest bytes of the body, from reads that were too small for a piece of their own.
        self._small: bytearray | None = None
        self.body_bytes = 0
        self._left = 0
        self._chunked_slack = CHUNK_OVERHEAD
        self._line = b""  # the beginning of a chunk-size line
        # Not empty after the last chunk: the latest bytes received, at most three, which may be the
        # beginning of the CRLF CRLF that ends the body.
        self._tail = b""
        self._done = False

    def close(self) -> None:
        """Releases the parser, because the parser and this reader refer to each other."""
        self._parser = None

    @property
    def started(self) -> bool:
        """Return whether a byte of the current request has arrived."""
        return self._carry is not None or self.state != HEAD

    @property
    def known_head(self) -> RequestHead | None:
        """The head of the current request, as far as it was read; None: no request line yet."""
        return self.head if self.head.method else None

    @property
    def waiting_bytes(self) -> int:
        """The bytes of an unfinished head, and those in `early`."""
        carry = self._carry
        return len(self.early) if carry is None else len(self.early) + len(carry)

    def take_body(self) -> list[bytes]:
        """Return the pieces of the whole body, and remove them from the reader."""
        if self._small is not None:
            self._join_small(self._small)
        if self.head.decoder is not None:
            self.head.decoder = None  # of a refused request
        body, self._body = self._body, None
        return [] if body is None else body

    def discard(self) -> None:
        """Drops all received bytes, because no request will be read any more."""
        self.early = b""
        self._body = self._small = self._carry = None

    def feed(self, data: bytes) -> None:
        """Reads received bytes. Afterwards `state` shows how far the request has been read.

        Raises RouterError for anything except one unambiguous HTTP/1.x request within the limits.
        """
        while data:
            state = self.state
            if state == HEAD:
                data = self._feed_head(data)
            elif state == SIZED:
                data = self._feed_sized(data)
            elif state == CHUNKED:
                data = self._feed_chunked(data)
            elif state in (COMPLETE, DECODES):
                self.keep(data)
                return
            else:
                self.early += data
                return

    def keep(self, data: bytes) -> None:
        """Appends bytes after the present request to `early`.

        Raises RouterError if `early` would exceed `limits.early_data` bytes.
        """
        if len(self.early) + len(data) > self._limits.early_data:
            raise RouterError(Reason.EARLY_DATA, "too much pipelined data during a response")
        self.early += data

    # -- head ---------------------------------------------------------------------------------

    def _feed_head(self, data: bytes) -> bytes:
        if self._carry is None and self._parser is None:
            known = self._latest
            end, length = (-1, -1) if known is None else known.match(data)
            if end < 0:
                at = data.find(_END)
                if at >= 0:
                    known = self._latest = self._plans.find(data[: at + 4])
                    if known is not None:
                        end, length = known.match(data)
            if known is not None and end > 0:
                self.head = head = known.plan.copy()
                if known.has_length:
                    head.content_length = length
                self._frame()
                return data[end:] if end < len(data) else b""
        return self._feed_new_head(data)

    def _feed_new_head(self, data: bytes) -> bytes:
        """Parses a head that arrives in pieces or is not remembered."""
        carry = self._carry
        if self._parser is None:
            if carry is not None:  # without a parser, `carry` is only the CR of an empty line
                data = bytes(carry) + data
                carry = self._carry = None
            if data[0] == _CR:
                rest = self._skip_blank(data)
                if rest is not None:
                    return rest
            self._chunks = []
            self.on_body = self._chunks.append  # the parser, which is written in C, calls `on_body`
            self._parser = httptools.HttpRequestParser(self)
        if carry is not None:
            # The end of the head (CRLF CRLF) may have begun in the last three of the earlier bytes.
            tail = bytes(carry[-3:])
            at = (tail + data).find(_END)
            end = at + 4 - len(tail) if at >= 0 else -1
        else:
            at = data.find(_END)
            end = at + 4 if at >= 0 else -1
        piece = data if end < 0 or end == len(data) else data[:end]
        before = 0 if carry is None else len(carry)
        if before + len(piece) > self._limits.head:
            self._too_large((carry or b"") + piece)
        # llhttp parses each piece, so that an invalid head is refused at once, not at a timeout.
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # `sort_fields` refuses an upgrade that cannot be ignored; `_frame` ignores others.
            pass
        except httptools.HttpParserInvalidMethodError:
            if _WORD.match((carry or b"") + piece) is None:
                raise RouterError(Reason.BAD_REQUEST, "unreadable request line") from None
            raise RouterError(Reason.METHOD_UNKNOWN, "unknown method") from None
        except httptools.HttpParserError as err:
            raise RouterError(Reason.BAD_REQUEST, f"unreadable request: {err}") from None
        if end < 0:
            if carry is None:
                carry = self._carry = bytearray()
            carry += piece
            if not self._line_whole:
                self._line_whole = carry.find(b"\r\n") >= 0
                # The `+ 1` is for the CR at the end of the request line, which may have arrived.
                if not self._line_whole and len(carry) > self._limits.request_line + 1:
                    self._too_large(carry)
            return b""
        raw = piece if carry is None else bytes(carry + piece)
        self._carry = None
        self.head = head = RequestHead()
        try:
            sort_fields(head, raw, self._limits, self.via)
        except RouterError:
            if head.origin is None:  # a browser must be able to read the error response
                head.origin = value_of(raw.split(b"\r\n"), b"origin:")
            raise
        self._remember(raw)
        self._frame()
        return data[end:] if end < len(data) else b""

    def _skip_blank(self, data: bytes) -> bytes | None:
        """Return `data` without the empty lines at its beginning; None if there are none.

        `data` begins with a CR. Raises RouterError if, over all reads, the empty lines before one
        request have more than `_BLANK` bytes.
        """
        if len(data) == 1:
            self._carry = bytearray(data)
            return b""
        end = 0
        while data[end : end + 2] == b"\r\n":
            end += 2
            if self._blank + end > _BLANK:
                raise RouterError(Reason.BAD_REQUEST, "too many empty lines before a request")
        self._blank += end
        return data[end:] if end else None

    def _remember(self, raw: bytes) -> None:
        head = self.head
        # A head of a chunked body is not remembered, because its parser must read the head first.
        # A head with a request ID is not remembered either, because it is never sent again.
        if not head.chunked and head.request_id is None:
            self._plans.keep(raw, head.copy())

    def _too_large(self, raw: bytearray | bytes) -> NoReturn:
        line = raw.find(b"\r\n")
        if line < 0 or line > self._limits.request_line:
            raise RouterError(Reason.TARGET_TOO_LONG, "the request line is too long")
        raise RouterError(
            Reason.HEAD_TOO_LARGE, f"the request head is over {self._limits.head} bytes"
        )

    def _frame(self) -> None:
        """Calls `on_head`, and decides where the body ends (RFC 9112 section 6.3)."""
        head = self.head
        length = head.content_length or 0
        head.has_body = head.chunked or length > 0
        if head.chunked and self._parser is not None and self._parser.should_upgrade():
            # The upgrade is ignored (RFC 9110 section 7.8), but this parser would read no body.
            self._done = False
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(_PLAIN_HEAD)
        self._on_head(head)
        if head.passes:
            self.state = PASSES
            return
        if length > self._body_most:
            raise self._body_too_large()
        if head.chunked:
            self.state = CHUNKED
        elif length:
            self.state = SIZED
            self._left = length
        else:
            self.state = COMPLETE

    def _body_too_large(self) -> RouterError:
        text = f"the body is over {self._body_most} bytes (the router's setting limits.body)"
        return RouterError(Reason.BODY_TOO_LARGE, text)

    # -- body ---------------------------------------------------------------------------------

    def _feed_sized(self, data: bytes) -> bytes:
        """Reads bytes of a body with a Content-Length. Returns the bytes after the body."""
        left = self._left
        rest = b""
        if len(data) > left:
            data, rest = data[:left], data[left:]
        self._left = left - len(data)
        self._take(data, not self._left)
        return rest

    def _take(self, data: bytes, is_last: bool) -> None:
        """Stores received bytes of the body, decoded if that is necessary."""
        decoder = self.head.decoder
        if decoder is None and not self.body_bytes and self.head.is_json and _may_be_utf_16(data):
            decoder = self.head.decoder = BodyDecoder(b"", is_json=True)
        if decoder is None:
            if data:
                self._keep_body(data)
            if is_last:
                self.state = COMPLETE
            return
        decoder.feed(data)
        if is_last:
            decoder.ends()
            self.state = DECODES
        self.decode()

    def decode(self) -> None:
        """Decodes the next part of the body. Called again in later turns while `is_behind`."""
        decoder = self.head.decoder
        assert decoder is not None
        data = decoder.read()
        if data:
            self._keep_body(data)
            if self.body_bytes > self._body_most:
                raise self._body_too_large()
        if self.state == DECODES and not decoder.is_behind:
            self.state = COMPLETE

    @property
    def is_behind(self) -> bool:
        """Whether bytes of the body have been received that are not decoded yet."""
        decoder = self.head.decoder
        return decoder is not None and decoder.is_behind

    @property
    def held_bytes(self) -> int:
        """The memory that the body needs. A decoder holds a window of its output, too."""
        held = self.body_bytes
        decoder = self.head.decoder
        return held if decoder is None else held + decoder.held_bytes + min(held, WINDOW)

    def _keep_body(self, data: bytes) -> None:
        """Stores received bytes of the body.

        All stored pieces except the first and the last have at least `_PIECE` bytes. So a body that
        is sent byte by byte does not become a million pieces.
        """
        self.body_bytes += len(data)
        watch = self.head.watch
        if watch is not None:
            watch.feed(data)
        small = self._small
        if len(data) >= _PIECE or self.body_bytes == len(data):
            if small is not None:
                self._join_small(small)
            self._add(data)
            return
        if small is None:
            small = self._small = bytearray()
        small += data
        if len(small) >= _PIECE:
            self._join_small(small)

    def _join_small(self, small: bytearray) -> None:
        self._add(bytes(small))
        self._small = None

    def _add(self, piece: bytes) -> None:
        body = self._body
        if body is None:
            self._body = [piece]  # takes less memory than an empty list with one append
        else:
            body.append(piece)

    def _feed_chunked(self, data: bytes) -> bytes:
        """Reads bytes of a chunked body. Returns the bytes after the body.

        The parser gets the bytes up to the next index at which the body can end. Then the parser
        reports whether the body has ended. When the work of the turn is used up, the remaining
        bytes are kept in `early`. They must be passed to `feed` again, in a later turn.
        """
        parser = self._parser
        chunks = self._chunks
        turn = self._turn
        at = 0
        size = len(data)
        while at < size and not self._done:
            if turn is not None and turn.left <= 0:
                self.early = data[at:]
                break
            end = self._may_end(data, at)
            piece = data[at:end] if at or end != size else data
            try:
                parser.feed_data(piece)
            except httptools.HttpParserError as err:
                raise RouterError(Reason.BAD_REQUEST, f"unreadable chunked body: {err}") from None
            at = end
            self._chunked_slack -= len(piece)
        body = b"".join(chunks) if len(chunks) != 1 else chunks[0]
        self._chunked_slack += len(body) + 16 * len(chunks)
        chunks.clear()
        if self._chunked_slack < 0:
            raise RouterError(Reason.BAD_REQUEST, "too much chunk overhead")
        # Overhead that earlier chunks did not use is not saved for later chunks. Otherwise a later
        # chunk could have an extension of any size.
        self._chunked_slack = min(self._chunked_slack, CHUNK_OVERHEAD)
        self._take(body, self._done)
        if self.body_bytes > self._body_most:
            raise self._body_too_large()
        return data[at:] if self._done and at < size else b""

    def _may_end(self, data: bytes, at: int) -> int:
        """Return the first index after `at` where the body can end, or the end of `data`.

        Returns an index between two chunks if the work of the turn is used up.

        The body ends with the first CRLF CRLF after the chunk of size 0. This function reads the
        chunk sizes to skip the data of the chunks, which may contain CRLF CRLF. The parser reads
        the same sizes and validates all other bytes.
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

    def on_message_complete(self) -> None:
        self._done = True


def _may_be_utf_16(data: bytes) -> bool:
    """Return whether JSON may have another encoding than UTF-8, or a byte order mark.

    `data`: the first bytes. JSON in UTF-8 begins with a brace, and its next byte is not 0.
    """
    return bool(data) and (data[0] != _BRACE or len(data) < 2 or not data[1])


def _chunk_size(line: bytes) -> int:
    """Return the size in a chunk-size line, which is passed without its line feed."""
    digits = line.partition(b";")[0] if len(line) > 2 else line
    digits = digits.removesuffix(b"\r")
    if _CHUNK_SIZE.fullmatch(digits) is None:  # `int` would accept `1_0`, ` 1` and `0x1`.
        raise RouterError(Reason.BAD_REQUEST, "unreadable chunked body: no size of a chunk")
    return int(digits, 16)
