"""Reads one request at a time from a client's bytes: finds where it ends, and enforces limits.

The caller passes bytes to `feed`. When a head is complete, `feed` returns the bytes after it, so
that the caller can refuse the request before its body is read. Then the caller calls `begin_body`,
and passes the bytes to `feed` again.

Rules:
1. The C parser (llhttp) validates the syntax; this file enforces the limits. The parser gets no
   byte of a second request while the first is incomplete, because the input is cut where a request
   can end. A head ends with CRLF CRLF. A chunked body ends with CRLF CRLF after its last chunk. Any
   other body ends after the number of bytes in Content-Length. Later bytes are kept in `early`.
2. Ambiguous input is refused (RFC 9112 sections 2.2, 3, 6). There is no lenient mode.
3. This file uses no socket, and calls no owner. Each refusal raises a RouterError, after which the
   reader is unusable.

llhttp does not check sizes and trailers, so this file does.
`request_fields.py` checks and sorts the fields of a head.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from httptools import HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade

from router.config.model import Limits
from router.core.errors import Reason, RouterError
from router.wire.http1.body_decoder import WINDOW, BodyDecoder
from router.wire.http1.chunked_body import ChunkedBody
from router.wire.http1.headers import value_of
from router.wire.http1.heads import BodyReading, RequestHead
from router.wire.http1.plans import Known, Plans
from router.wire.http1.request_fields import sort_fields
from router.wire.turn import Turn

# The states of a reader.
HEAD: Final = 0  # waiting for a head, or inside a head
SIZED: Final = 1  # inside a body with a Content-Length
CHUNKED: Final = 2
COMPLETE: Final = 3  # the request has been read; later bytes are kept in `early`
DECODES: Final = 5  # the body has been read, but not all of it is decoded; later bytes are kept
PASSES: Final = 4  # the head has been read; another protocol, a `Tunnel`, will read the body
HEADED: Final = 6  # the head has been read; `begin_body` must be called next

_END: Final = b"\r\n\r\n"
_PIECE: Final = 16 * 1024  # pieces of a body that are smaller than this many bytes are joined

_WORD = re.compile(rb"[A-Za-z-]{1,32}(?: |\Z)")  # the beginning of a line that may be a method

_BLANK: Final = 16  # maximum bytes of empty lines before a request (RFC 9112 section 2.2)
_CR: Final = 13
_BRACE: Final = 0x7B


# The value of `head` until a head has arrived. All readers share it, so it must not be changed.
_UNREAD: Final = RequestHead()


class RequestReader:
    """Reads the requests of one client connection."""

    __slots__ = (
        "_blank",
        "_body",
        "_body_most",
        "_carry",
        "_chunked",
        "_latest",
        "_left",
        "_limits",
        "_line_whole",
        "_plans",
        "_small",
        "_turn",
        "body_bytes",
        "early",
        "head",
        "state",
        "via",
    )

    def __init__(
        self,
        limits: Limits,
        via: bytes,
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
        # the router's own name; a request whose Via header has this name is in a loop
        self.via = via.lower()
        self.early = b""
        self.reset()

    def reset(self) -> None:
        """Prepares for the next request of the connection. The bytes in `early` are kept."""
        self.state = HEAD
        self.head = _UNREAD
        # The parser of a head that is not remembered, and of a chunked body after it.
        self._chunked: ChunkedBody | None = None
        self._carry: bytearray | None = None  # the beginning of a head that arrives in pieces
        self._line_whole = False
        self._blank = 0  # the bytes of empty lines before the head
        self._body: list[bytes] | None = None  # the pieces of the body that have arrived
        # The latest bytes of the body, from reads that were too small for a piece of their own.
        self._small: bytearray | None = None
        self.body_bytes = 0
        self._left = 0

    def close(self) -> None:
        """Releases the parser."""
        if self._chunked is not None:
            self._chunked.close()
            self._chunked = None

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
        reading = self.head.reading
        if reading.decoder is not None:  # The decoder is not needed any more; the scan is.
            self.head.reading = BodyReading(is_json=reading.is_json, watch=reading.watch)
        body, self._body = self._body, None
        return [] if body is None else body

    def discard(self) -> None:
        """Drops all received bytes, because no request will be read any more."""
        self.early = b""
        self._body = self._small = self._carry = None

    def feed(self, data: bytes) -> bytes:
        """Reads received bytes. Afterwards `state` shows how far the request has been read.

        Returns the bytes after a head that is now complete (HEADED); else b"". Raises RouterError
        for anything except one unambiguous HTTP/1.x request within the limits.
        """
        while data:
            state = self.state
            if state == HEAD:
                data = self._feed_head(data)
                if self.state == HEADED:
                    return data
            elif state == SIZED:
                data = self._feed_sized(data)
            elif state == CHUNKED:
                data = self._feed_chunked(data)
            elif state in (COMPLETE, DECODES):
                self.keep(data)
                break
            else:
                self.early += data
                break
        return b""

    def keep(self, data: bytes) -> None:
        """Appends bytes after the present request to `early`.

        Raises RouterError if `early` would exceed `limits.early_data` bytes.
        """
        if len(self.early) + len(data) > self._limits.early_data:
            raise RouterError(Reason.EARLY_DATA, "too much pipelined data during a response")
        self.early += data

    # -- head ---------------------------------------------------------------------------------

    def _feed_head(self, data: bytes) -> bytes:
        """Reads bytes of a head. Returns the bytes after it."""
        if self._carry is None and self._chunked is None:
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
                    head.has_body = length > 0
                self.state = HEADED
                return data[end:] if end < len(data) else b""
        return self._feed_new_head(data)

    def _feed_new_head(self, data: bytes) -> bytes:
        """Parses a head that arrives in pieces or is not remembered."""
        carry = self._carry
        if self._chunked is None:
            if carry is not None:  # without a parser, `carry` is only the CR of an empty line
                data = bytes(carry) + data
                carry = self._carry = None
            if data[0] == _CR:
                rest = self._skip_blank(data)
                if rest is not None:
                    return rest
            self._chunked = ChunkedBody(self._turn)
        # The end of the head (CRLF CRLF) may have begun in the last three of the earlier bytes.
        tail = b"" if carry is None else bytes(carry[-3:])
        at = (tail + data).find(_END)
        end = at + 4 - len(tail) if at >= 0 else -1
        piece = data if end < 0 or end == len(data) else data[:end]
        before = 0 if carry is None else len(carry)
        if before + len(piece) > self._limits.head:
            self._too_large((carry or b"") + piece)
        self._parse(self._chunked, piece)
        if end < 0:
            self._carry_on(piece)
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
        head.has_body = head.chunked or bool(head.content_length)
        self._remember(raw)
        self.state = HEADED
        return data[end:] if end < len(data) else b""

    def _parse(self, parser: ChunkedBody, piece: bytes) -> None:
        """Validates a piece of a head with llhttp, so that an invalid head is refused at once, not
        at a timeout."""
        try:
            parser.validate(piece)
        except HttpParserUpgrade:
            # `sort_fields` refuses an upgrade that cannot be ignored; `begin_body` ignores others.
            pass
        except HttpParserInvalidMethodError:
            if _WORD.match((self._carry or b"") + piece) is None:
                raise RouterError(Reason.BAD_REQUEST, "unreadable request line") from None
            raise RouterError(Reason.METHOD_UNKNOWN, "unknown method") from None
        except HttpParserError as err:
            raise RouterError(Reason.BAD_REQUEST, f"unreadable request: {err}") from None

    def _carry_on(self, piece: bytes) -> None:
        """Keeps a piece of a head that is not complete."""
        carry = self._carry
        if carry is None:
            carry = self._carry = bytearray()
        carry += piece
        if not self._line_whole:
            self._line_whole = carry.find(b"\r\n") >= 0
            # The `+ 1` is for the CR at the end of the request line, which may have arrived.
            if not self._line_whole and len(carry) > self._limits.request_line + 1:
                self._too_large(carry)

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

    def begin_body(self) -> None:
        """Decides where the body ends (RFC 9112 section 6.3), unless another protocol reads it."""
        head = self.head
        length = head.content_length or 0
        if head.passes:
            self.state = PASSES
            return
        if length > self._body_most:
            raise self._body_too_large()
        if head.chunked:
            self.state = CHUNKED
            assert self._chunked is not None, "a head of a chunked body is never remembered"
            self._chunked.begin()
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
        reading = self.head.reading
        decoder = reading.decoder
        if decoder is None and not self.body_bytes and reading.is_json and _may_be_utf_16(data):
            decoder = BodyDecoder(b"", is_json=True)
            self.head.reading = BodyReading(is_json=True, decoder=decoder, watch=reading.watch)
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
        decoder = self.head.reading.decoder
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
        decoder = self.head.reading.decoder
        return decoder is not None and decoder.is_behind

    @property
    def held_bytes(self) -> int:
        """The memory that the body needs. A decoder holds a window of its output, too."""
        held = self.body_bytes
        decoder = self.head.reading.decoder
        return held if decoder is None else held + decoder.held_bytes + min(held, WINDOW)

    def _keep_body(self, data: bytes) -> None:
        """Stores received bytes of the body.

        All stored pieces except the first and the last have at least `_PIECE` bytes. So a body that
        is sent byte by byte does not become a million pieces.
        """
        self.body_bytes += len(data)
        watch = self.head.reading.watch
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

        When the work of the turn is used up, the remaining bytes are kept in `early`. They must be
        passed to `feed` again, in a later turn.
        """
        chunked = self._chunked
        assert chunked is not None
        body, at = chunked.feed(data)
        self._take(body, chunked.is_over)
        if self.body_bytes > self._body_most:
            raise self._body_too_large()
        if chunked.is_over:
            return data[at:] if at < len(data) else b""
        if at < len(data):
            self.early = data[at:]
        return b""


def _may_be_utf_16(data: bytes) -> bool:
    """Return whether JSON may have another encoding than UTF-8, or a byte order mark.

    `data`: the first bytes. JSON in UTF-8 begins with a brace, and its next byte is not 0.
    """
    return bool(data) and (data[0] != _BRACE or len(data) < 2 or not data[1])
