"""Reads one response from a replica's bytes: finds where it ends, and enforces limits.

Rules:
1. A reader reads one response. Bytes after the complete response only set `surplus`, and then the
   connection does not return to the pool.
2. A response with a status below 200 is an interim response; the final response follows. The
   response to a HEAD request has no body, even if its head has a Content-Length (RFC 9110 section
   6.4.1). A response with status 204 or 304 has no body either.
3. Only this file decides where the body ends (RFC 9112 section 6.3). `eof()` returns whether the
   end of the connection was the end of the body.
4. An invalid head raises `BadResponse`, and no byte of its response reaches a client. Examples:
   Content-Length together with Transfer-Encoding, control bytes, or bytes before the status line.
"""

from __future__ import annotations

from typing import Final

import httptools

from router.config.model import Limits
from router.wire.http1 import headers as h
from router.wire.http1.heads import ResponseHead
from router.wire.http1.plans import Known, Plans

HEAD: Final = 0
SIZED: Final = 1
CHUNKED: Final = 2
UNTIL_EOF: Final = 3
COMPLETE: Final = 4

_END: Final = b"\r\n\r\n"
# Proxies in front, such as nginx, hold event streams back without this field.
NO_BUFFERING: Final = b"x-accel-buffering: no"
_MAX_INTERIM: Final = 100  # maximum number of 1xx responses before the final one
# A chunked body may have 32 bytes of overhead (chunk-size lines, extensions and trailers) for each
# piece of its data, and this many bytes beyond.
CHUNK_OVERHEAD: Final = 16 * 1024


class BadResponse(Exception):
    """The replica sent bytes that are not a valid HTTP/1.x response."""


class ResponseReader:
    """Reads one response. `parts` collects pieces of the body until the caller clears the list."""

    __slots__ = (
        "_carry",
        "_ended_at",
        "_for_head",
        "_interims",
        "_left",
        "_limits",
        "_parser",
        "_plans",
        "_slack",
        "head",
        "interim",
        "on_body",
        "parts",
        "state",
        "surplus",
    )

    def __init__(
        self,
        limits: Limits,
        for_head: bool = False,
        plans: Plans[ResponseHead] | None = None,
    ) -> None:
        self._limits = limits
        self._plans = Plans[ResponseHead]() if plans is None else plans
        self._for_head = for_head  # the request's method is HEAD
        self.head: ResponseHead | None = None
        self.interim: list[ResponseHead] | None = None  # interim responses, until they are taken
        self.parts: list[bytes] = []
        self.state = HEAD
        self.surplus = False
        self._carry = b""
        self._left = 0
        self._interims = 0
        self._slack = CHUNK_OVERHEAD
        self._ended_at = -1
        self._parser: httptools.HttpResponseParser | None = None

    def feed(self, data: bytes) -> None:
        """Reads received bytes. Raises BadResponse."""
        if self.state != HEAD:
            self._feed_body(data)
            return
        body = self._feed_head(data)
        if body:
            self._feed_body(body)

    def _feed_body(self, data: bytes) -> None:
        if self.state == CHUNKED:
            self._feed_chunked(data)
        elif self.state == SIZED:
            self._feed_sized(data)
        elif self.state == UNTIL_EOF:
            self.parts.append(data)
        else:
            self.surplus = True

    def eof(self) -> bool:
        """Called when the connection ended with a FIN. Returns whether the body is complete."""
        if self.state == UNTIL_EOF:
            self.state = COMPLETE
        return self.state == COMPLETE

    # -- head ---------------------------------------------------------------------------------

    def _feed_head(self, data: bytes) -> bytes:
        """Reads bytes of the head. Returns the bytes after the head."""
        plans = self._plans
        while data:
            carry = self._carry
            if carry:
                data = carry + data
                self._carry = b""
            known = plans.latest
            if known is not None:
                end, length = known.match(data)
                if end > 0:
                    return self._use(known, data, end, length)
            end = self._end_of_head(data, max(0, len(carry) - 3))
            if end < 0:
                self._carry = data
                return b""
            raw = data[:end] if end < len(data) else data
            known = plans.latest = plans.find(raw)
            if known is not None:
                matched, length = known.match(raw)
                if matched == end:
                    return self._use(known, data, end, length)
            data = data[end:] if end < len(data) else b""
            if self._take_new(raw):
                return data
        return b""

    def _end_of_head(self, data: bytes, start: int) -> int:
        """Return the index after the head; -1: it is incomplete. Raises BadResponse.

        `start`: the index from which the end of the head is searched.
        """
        if not data.startswith(b"HTTP/1.") and not b"HTTP/1.".startswith(data):
            raise BadResponse("no HTTP/1.x status line")
        at = data.find(_END, start)
        if at < 0:
            limit = self._limits.response_head
            if len(data) > limit:
                raise BadResponse(f"a head over {limit} bytes")
            if b"\n" in data and b"\n\n" in data.replace(b"\r", b""):
                raise BadResponse("a head with bare line feeds")
            return -1
        return at + 4

    def _take_new(self, raw: bytes) -> bool:
        """Validates a head that is not remembered. Returns whether it is the head of the final
        response, and not of an interim response. Raises BadResponse."""
        if len(raw) > self._limits.response_head:
            raise BadResponse(f"a head over {self._limits.response_head} bytes")
        head = self._sort(raw)
        if head.status < 200:
            if head.status == 101:
                raise BadResponse("an unrequested switch of protocols")
            self._parse(raw)
            if self.interim is None:
                self.interim = []
            self.interim.append(head)
            self._interims += 1
            if self._interims > _MAX_INTERIM:
                raise BadResponse("too many interim responses")
            self._parser = None
            # llhttp has reported the end of the interim response, which is not the end of the final
            # response.
            self._ended_at = -1
            return False
        self._frame(head)
        self._parse(raw)
        self._plans.keep(raw, head.copy())
        if self.state != CHUNKED:
            # The parser is no longer needed. It and this reader refer to each other, so the
            # reference is removed.
            self._parser = None
        self.head = head
        return True

    def _use(self, known: Known[ResponseHead], data: bytes, end: int, length: int) -> bytes:
        """Takes a remembered head. Returns the bytes after it.

        `end`, `length`: the head's size in bytes, and its Content-Length.
        """
        plan = known.plan
        if known.has_length:
            plan = plan.copy()
            plan.content_length = length
        self._frame(plan)
        if self.state == CHUNKED:
            self._parse(data[:end])
        self.head = plan
        return data[end:] if end < len(data) else b""

    def _parse(self, raw: bytes) -> None:
        """Validates the head with llhttp. Raises BadResponse."""
        # Each head needs a new parser: a parser whose response had no body cannot read another.
        self.on_body = self.parts.append  # the parser, which is written in C, calls `on_body`
        self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as err:
            raise BadResponse(str(err)) from None

    def _sort(self, raw: bytes) -> ResponseHead:
        """Return the head in these bytes, with sorted fields."""
        lines = raw[:-4].split(b"\r\n")
        if len(lines) - 1 > self._limits.response_header_count:
            raise BadResponse("too many header fields")
        head = _head_of(lines[0])
        keep = head.lines
        nominated: set[bytes] = set()
        known = h.RESPONSE.memo.get
        fields = iter(lines)
        next(fields)
        for line in fields:
            entry = known(line) or h.RESPONSE.sort(line)
            action, value = entry
            if action == h.PASS:
                keep.append(line)
            elif action == h.CONNECTION:
                tokens = h.connection_tokens(value)
                if b"close" in tokens:
                    head.keep_alive = False
                elif b"keep-alive" in tokens:
                    head.keep_alive = True
                nominated.update(tokens)
            elif action <= h.TRANSFER_ENCODING:
                _read_framing(head, action, value)
            else:
                _read_forwarded(head, action, value)
                keep.append(line)
        nominated -= {b"keep-alive", b"close"}
        if nominated:
            if nominated & h.PROTECTED_IN_RESPONSES:
                raise BadResponse("Connection names a field that it must not name")
            head.lines = h.without(keep, nominated)
        if head.is_sse and h.value_of(head.lines, b"x-accel-buffering:") is None:
            head.lines.append(NO_BUFFERING)
        if head.lines:
            head.joined = b"\r\n" + b"\r\n".join(head.lines)
        if head.chunked:
            if head.content_length is not None:
                raise BadResponse("both Content-Length and Transfer-Encoding")
            if lines[0][7:8] == b"0":
                # HTTP/1.0 has no chunks, so a program on the way may have changed the framing. The
                # connection must not be used again (RFC 9112 section 6.1).
                head.keep_alive = False
        return head

    def _frame(self, head: ResponseHead) -> None:
        if self._for_head or head.status in (204, 304):
            self.state = COMPLETE
            if head.status == 204:
                head.content_length = None
        elif head.chunked:
            self.state = CHUNKED
        elif head.content_length is not None:
            self._left = head.content_length
            self.state = SIZED if self._left else COMPLETE
        else:
            self.state = UNTIL_EOF
            head.keep_alive = False

    # -- body ---------------------------------------------------------------------------------

    def _feed_sized(self, data: bytes) -> None:
        left = self._left - len(data)
        if left < 0:
            data = data[:left]
            self.surplus = True
            left = 0
        self._left = left
        self.parts.append(data)
        if not left:
            self.state = COMPLETE

    def _feed_chunked(self, data: bytes) -> None:
        parts = self.parts
        before = len(parts)
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as err:
            if self._ended_at < 0:
                if not _is_about_trailers(str(err)):
                    raise BadResponse(str(err)) from None
                # Only the trailers are invalid, and trailers are always dropped. So the body is
                # complete.
                self._ended_at = len(parts)
            self.surplus = True  # the connection must not be used again
        if self._ended_at >= 0:
            # More than one response can end in one read: only the first belongs to this request.
            # llhttp silently skips a single empty line after it, so the line is detected here.
            if data.endswith(b"\r\n\r\n\r\n"):
                self.surplus = True
            if len(parts) > self._ended_at:
                self.surplus = True
                del parts[self._ended_at :]
            self.state = COMPLETE
            self._parser = None
            return
        count = len(parts) - before
        if count == 1:
            slack = self._slack + len(parts[-1]) - len(data) + 32
        else:
            slack = self._slack - len(data) + 32 * count
            for part in parts[before:]:
                slack += len(part)
        if slack < 0:
            raise BadResponse("too much chunk overhead")
        self._slack = min(CHUNK_OVERHEAD, slack)

    def on_message_begin(self) -> None:
        if self._ended_at >= 0:
            self.surplus = True

    def on_message_complete(self) -> None:
        if self._ended_at < 0:
            self._ended_at = len(self.parts)


def _is_about_trailers(message: str) -> bool:
    """Return whether llhttp's error message reports a framing field in the trailers.

    After the head of a chunked response, Content-Length or Transfer-Encoding can only be in the
    trailers.
    """
    return "Content-Length" in message or "Transfer-Encoding" in message


def _head_of(status_line: bytes) -> ResponseHead:
    """Return an empty head with the values of the status line. Raises BadResponse."""
    code = status_line[9:12]
    if (
        status_line[8:9] != b" "
        or status_line[7:8] not in (b"0", b"1")
        or not code.isdigit()
        or status_line[12:13] not in (b"", b" ")
    ):
        raise BadResponse("an unreadable status line")
    head = ResponseHead()
    head.status = int(code)
    if head.status < 100:
        raise BadResponse("a status below 100")
    head.status_line = status_line[9:]
    head.keep_alive = status_line[7:8] == b"1"
    return head


def _read_framing(head: ResponseHead, action: int, value: bytes) -> None:
    """Reads a field of where the body ends, or drops the field. Raises BadResponse."""
    if action == h.CONTENT_LENGTH:
        if not value.isdigit() or len(value) > 18:
            raise BadResponse("an unusable Content-Length")
        if head.content_length is not None:
            raise BadResponse("more than one Content-Length")
        head.content_length = int(value)
    elif action == h.TRANSFER_ENCODING:
        if value.lower() != b"chunked" or head.chunked:
            raise BadResponse("a transfer coding other than chunked")
        head.chunked = True


def _read_forwarded(head: ResponseHead, action: int, value: bytes) -> None:
    """Reads a field that is also forwarded."""
    if action == h.CONTENT_TYPE:
        kind = value.partition(b";")[0].strip().lower()
        head.is_sse = kind == b"text/event-stream"
        head.is_json = kind == b"application/json" or kind.endswith(b"+json")
    elif action == h.LOAD:
        head.load = value
    elif action == h.RETRY_AFTER:
        head.retry_after = value
    else:
        head.has_date = True
