"""Writes the response of one request to the client: head, body, comments and the router's events.

The reply frames the body (by Content-Length, by chunks, or by the end of the connection) and counts
its bytes. The request's `Exchange` decides what is sent and when a connection may be reused. An
event stream is read by a `UsageTap` while it is relayed.

Every token causes the calls `AttemptIO.on_data` → `relay` → `client.write`. These calls need no
task, no await, no log call, no timer, and only one concatenation of bytes.

Must never: decide about an attempt, end the request, or write after its exchange has ended it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from router.core.clock import monotonic
from router.core.errors import RouterError
from router.core.progress import Progress
from router.core.token_gain import StreamGain
from router.dispatch.response_head import interim_head, response_head, stream_head
from router.dispatch.restored_name import RestoredName
from router.dispatch.resumption import ResumableStream
from router.dispatch.usage.token_counts import (
    COUNTS_ELSEWHERE,
    UNKNOWN,
    BodyEnd,
    Usage,
    usage_elsewhere,
    usage_of,
)
from router.dispatch.usage.usage_tap import UsageTap
from router.intake.routes import RESPONSES_PATH
from router.wire.client import ClientConnection
from router.wire.http1 import answers, error_shapes as shapes
from router.wire.http1.chunks import chunk
from router.wire.http1.error_shapes import ErrorFacts
from router.wire.http1.heads import RequestHead, ResponseHead
from router.wire.http1.response_reader import COMPLETE, ResponseReader
from router.wire.sweep import NEVER

_COMMENT: Final = b": waiting for the first token\n\n"
_GAP_COMMENT: Final = b": waiting for the next token\n\n"
_FRAME_BYTES: Final = 256  # Assumed bytes of an answer that are not its text.
# Maximum bytes of a JSON line with one token; a line of /api/chat has about 130 bytes.
_LINE_BYTES: Final = 400
_COLON: Final = 0x3A  # The first byte of a comment in an event stream.
_NONE: Final = Progress()  # `Reply.progress` until the replica is known; it is never read.


class Reply:
    """The response to one request. Times are monotonic seconds."""

    __slots__ = (
        "_chunked",
        "_client",
        "_end",
        "_gain",
        "_gain_at",
        "_head",
        "_is_sized",
        "_look",
        "_no_body",
        "_request_id",
        "_tap",
        "_target",
        "_whole",
        "bytes_out",
        "estimate",
        "is_complete",
        "is_text",
        "is_work",
        "keep_alive",
        "last_at",
        "limits",
        "progress",
        "restored_name",
        "status",
        "stream",
    )

    def __init__(
        self,
        client: ClientConnection,
        request_id: bytes,
        *,
        target: bytes,
        head: RequestHead,
    ) -> None:
        """`target`: the request's path. `head`: its head."""
        self._client = client
        self._target = target
        self._head = head
        self._request_id = request_id
        self._no_body = head.method == b"HEAD"
        self.last_at = 0.0  # Time of the last bytes from the replica; 0: none were relayed.
        self.status = 0  # The status sent to the client; 0: none.
        self.bytes_out = 0  # Bytes of the body that were written.
        # The value of the header with the estimated time to first token, set before the head is
        # written; b"": the client does not ask for it, or there is no estimate.
        self.estimate = b""
        # Header lines with what is left of the key's limits, each with a CRLF before it; b"": none.
        self.limits = b""
        self.keep_alive = False  # Whether the response's head allows the connection to be reused.
        self.is_complete = False  # Whether all of the response was written.
        # Whether the response is an engine's answer for which tokens are counted.
        self.is_work = False
        # Whether the path of the answer is unknown to the router and the answer may be text.
        self.is_text = False
        self.progress = _NONE  # The progress of the replica whose content is relayed.
        self._is_sized = False  # Whether the response's head has a Content-Length.
        self._chunked = False
        # The function that is called with each part of the body and returns the bytes to relay;
        # `None`: that is `_tap.feed`, or the part itself if there is no tap.
        self._look: Callable[[bytes], bytes] | None = None
        self._tap: UsageTap | None = None
        self._end: BodyEnd | None = None
        # Finds the tokens of a stream that are late; `None`: its events cannot be read.
        self._gain: StreamGain | None = None
        self._gain_at = NEVER  # Copy of `StreamGain.check_at`.
        self._whole: Usage | None = None  # The usage of an answer that came in one piece.
        # Wraps the stream's `UsageTap` if another replica may resume the stream.
        self.stream: ResumableStream | None = None
        # Writes the client's model name into the response; `None`: the response is not changed.
        # Set before `watch` and `begin`.
        self.restored_name: RestoredName | None = None

    # -- responses of the replica -------------------------------------------------------------

    def interim(self, heads: list[ResponseHead]) -> None:
        """Relay 103 (early hints) to clients that support it. Other 1xx responses are dropped."""
        if not self._head.http_1_0:
            for head in heads:
                if head.status == 103:
                    self._client.write(interim_head(head))

    def begin(
        self, reader: ResponseReader, replica: str | None, region: str, *, counts_tokens: bool
    ) -> None:
        """Write the response's head. If the response is complete and not a stream, write all of it.

        `replica`: the replica's name for a debug header; `None`: no such header. `region`: the
        replica's region for a header; "": no such header. `counts_tokens`: token counts are read
        from the body.
        """
        head, client, tap = reader.head, self._client, self._tap
        assert head is not None
        self.status = head.status
        http_1_0 = self._head.http_1_0
        length = head.content_length
        whole = reader.state == COMPLETE
        restored = self.restored_name
        if restored is not None:
            length = None  # The length of the relayed body is not known yet.
            if whole and not head.is_sse:
                body = b"".join(reader.parts)
                reader.parts[:] = [restored.feed(body) + restored.flush()]
            elif self._look is None:
                self._look = restored.after(None)
        elif tap is not None and tap.changes_length:
            length = None
        # RFC 9110 section 8.6: a response to HEAD, and a 304, may only have the Content-Length of
        # the response to GET, which the router does not know.
        bodyless = self._no_body or head.status in (204, 304)
        if length is None and whole and not bodyless and not head.is_sse and head.status >= 200:
            length = sum(map(len, reader.parts))
        self._is_sized = length is not None
        self._chunked = length is None and not bodyless and not http_1_0
        self.keep_alive = client.keeps_alive and (length is not None or self._chunked or bodyless)
        lines = response_head(
            head,
            self._request_id,
            length=length,
            chunked=self._chunked,
            keep_alive=self.keep_alive,
            http_1_0=http_1_0,
            replica=replica,
            region=region,
            estimate=self.estimate,
            limits=self.limits,
            cors=client.cors_lines,
        )
        if whole and length is not None and not bodyless:
            # An answer that is not a stream usually needs only this one write. `+` is faster than
            # `+=` in compiled code.
            lines = lines + self._take_whole(reader, counts_tokens)
        elif counts_tokens and not head.is_sse:
            self._end = BodyEnd(self._target)
            self._look = self._end.feed if restored is None else restored.after(self._end.feed)
        client.write(lines)
        self.is_work = counts_tokens

    def _take_whole(self, reader: ResponseReader, counts_tokens: bool) -> bytes:
        """Return the body of a complete response, and read its token counts."""
        parts = reader.parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self.bytes_out += len(body)
        if self._tap is not None:
            self._tap.feed(body)
        elif counts_tokens:
            if self._target in COUNTS_ELSEWHERE:
                self._whole = usage_elsewhere(self._target, body)
            else:
                self._whole = usage_of(body)
        return body

    def watch(
        self,
        tap: UsageTap,
        first_due: float,
        tpot_s: float,
        stream: ResumableStream | None = None,
    ) -> None:
        """Read the token counts of an event stream from now on. Called before `begin`, if the
        response has not begun.

        `first_due`, `tpot_s`: the deadline of the first token, and the TPOT SLO. `stream`
        wraps the tap. If another replica resumes the stream, this method is called again with
        another tap.
        """
        gain, before = self._gain, self._tap
        if gain is None or before is None:
            self._gain = StreamGain(first_due, tpot_s)
            self._gain_at = first_due
        else:
            gain.before += max(0, before.content_so_far)
        if self._target == RESPONSES_PATH:
            tap.read_responses()
        self._tap = tap
        self.stream = stream
        restored = self.restored_name
        if restored is None:
            self._look = None if stream is None else stream.feed
        else:
            self._look = restored.after(tap.feed if stream is None else stream.feed)

    def relay(self, reader: ResponseReader) -> bool:
        """Relay the bytes that the reader has received.

        Returns True if the response is complete. This runs for every token.
        """
        parts = reader.parts
        if parts and not self._no_body:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            if body:
                now = monotonic()
                self.last_at = now
                if body[0] != _COLON:
                    self.progress.at = now
                if now >= self._gain_at:
                    self._look_at_gain(now)
                look, tap = self._look, self._tap
                if look is not None:
                    body = look(body)
                elif tap is not None:
                    body = tap.feed(body)
                if reader.state == COMPLETE:
                    self._finish(body)
                    return True
                size = len(body)
                if size:
                    self.bytes_out += size
                    self._client.write(chunk(body) if self._chunked else body)
                return False
        if reader.state != COMPLETE:
            return False
        self._finish(b"")
        return True

    def _look_at_gain(self, now: float) -> None:
        """Find out whether the tokens that are read at `now`, and not counted yet, are late."""
        gain, tap = self._gain, self._tap
        if gain is not None and tap is not None:
            gain.reads(now, tap.content_so_far)
            self._gain_at = gain.check_at

    def _finish(self, body: bytes) -> None:
        """Write the last bytes of a complete response."""
        stream, restored = self.stream, self.restored_name
        if stream is not None:
            body += self._restored(stream.flush())
            if stream.is_broken:
                if body:
                    self.event(body)
                return
        elif self._tap is not None:
            body += self._restored(self._tap.flush())
        if restored is not None:
            body += restored.flush()
        size = len(body)
        self.bytes_out += size
        if not self._chunked:
            if size:
                self._client.write(body)
        elif size:
            self._client.write(chunk(body) + b"0\r\n\r\n")
        else:
            self._client.write(b"0\r\n\r\n")
        self.is_complete = True

    def _restored(self, data: bytes) -> bytes:
        """Return bytes of the response that were withheld, with the client's model name."""
        restored = self.restored_name
        return data if restored is None or not data else restored.feed(data)

    def send_withheld_error(self) -> bool:
        """Send the client the withheld error of a broken stream that no replica resumes.

        Returns True if the response is complete with this error.
        """
        stream = self.stream
        if stream is None or not stream.is_broken:
            return False
        said = stream.take_withheld()
        if stream.has_ended:
            self._finish(said)
            return True
        self.event(said)
        return False

    @property
    def is_counted(self) -> bool:
        """Whether the response is an event stream that can be read."""
        return self._tap is not None

    @property
    def content_events(self) -> int:
        """The number of content events of a stream; -1: the response is not a stream, or its events
        cannot be read."""
        return -1 if self._tap is None else self._tap.content_events

    def timely(self, is_whole: bool) -> float:
        """Return the share of a stream's content events that came before their deadlines, 0 to 1.

        Returns -1 if the stream has no content events, or if they cannot be read. Called once, at
        the end of the request. `is_whole`: see `usage`.
        """
        gain, tap = self._gain, self._tap
        if gain is None or tap is None:
            return -1.0
        return gain.share(tap.content_at_end(is_whole))

    @property
    def has_done(self) -> bool:
        """Whether the client was sent a whole stream, up to its [DONE]."""
        tap, stream = self._tap, self.stream
        return tap is not None and tap.has_done and (stream is None or not stream.is_broken)

    @property
    def has_failed(self) -> bool:
        """Whether the stream reported an error of the engine."""
        return self._tap is not None and self._tap.has_seen_error

    @property
    def blames_replica(self) -> bool:
        """Whether the stream reported an error that the engine itself caused."""
        return self._tap is not None and self._tap.blames_server

    def usage(self, is_whole: bool) -> Usage:
        """Return the token counts known so far.

        `is_whole`: the response was received completely.
        """
        if self.stream is not None:
            return self.stream.usage(is_whole)
        if self._tap is not None:
            return self._tap.result(is_whole)
        if self._end is not None:
            return self._end.result(is_whole)
        return self._whole or UNKNOWN

    def estimated_stream(self, ratio: float, least: float, is_whole: bool) -> int:
        """Estimate the output tokens of an event stream without exact counts.

        `ratio`: the bytes of a token. `least`: the fewest tokens of an event of the replica.
        """
        tap = self._tap
        if tap is None:
            return 0
        events = max(0, tap.content_at_end(is_whole)) * least
        return max(int(events), int(tap.text_bytes(is_whole) / ratio))

    def text_so_far(self) -> tuple[int, int]:
        """Return the bytes of the text and the content events of an event stream that was left."""
        tap = self._tap
        return (0, 0) if tap is None else (tap.text_bytes(False), tap.content_so_far)

    def estimated_output(self, ratio: float) -> int:
        """Estimate the output tokens of an answer without counts from the bytes relayed so far.

        `ratio`: the bytes of a token.
        """
        lines = 0 if self._end is None else self._end.lines
        # In a stream of JSON lines, each line has one token; a long line has several tokens.
        if lines > 1:
            return max(lines, self.bytes_out // _LINE_BYTES)
        return int(max(0, self.bytes_out - _FRAME_BYTES) / ratio)

    # -- comments, events and errors of the router --------------------------------------------

    def comment(self) -> None:
        """Send an SSE comment. If no status was sent yet, send a 200 first.

        Comments prevent a read timeout of the client while the request waits at an engine.
        """
        if not self.status:
            self.status = 200
            self._chunked = not self._head.http_1_0
            self.keep_alive = self._chunked and self._client.keeps_alive
            self._client.write(
                stream_head(
                    self._request_id,
                    chunked=self._chunked,
                    keep_alive=self.keep_alive,
                    estimate=self.estimate,
                    limits=self.limits,
                    cors=self._client.cors_lines,
                )
            )
        self.event(_COMMENT)

    def gap_comment(self) -> None:
        """Send an SSE comment into a silent stream, so that no hop on the way closes it.

        A response that is not a readable event stream, or that was cut inside an event, gets none.
        """
        tap = self._tap
        if tap is not None and tap.ends_between_events and not self._is_sized:
            self.event(_GAP_COMMENT)

    def event(self, event: bytes) -> None:
        """Write an event of the router into a stream that has begun."""
        self.bytes_out += len(event)
        if self._chunked:
            event = chunk(event)
        self._client.write(event)

    def late_error(self, facts: ErrorFacts) -> None:
        """Write an error event into a stream that has begun. The stream ends after it."""
        tap = self._tap
        number = 0 if tap is None else tap.events
        family = shapes.family_of(self._target, self._head.lines)
        event = shapes.event_of(facts, family, self._request_id.decode("ascii"), number)
        if tap is not None:
            # Without the blank line, the error would become part of an engine's incomplete event.
            rest = self._restored(tap.release())
            if self.restored_name is not None:
                rest += self.restored_name.flush()
            event = rest + (b"" if tap.ends_between_events else b"\n\n") + event
        self.event(event)

    def end_with_error(self, facts: ErrorFacts) -> None:
        """Write an error event into a stream that has had no content, and end the response.

        Nothing is missing, so the client must not take the response for a truncated one.
        """
        self.late_error(facts)
        self._finish(b"")

    def error(self, err: RouterError) -> bool:
        """Write a complete error response. Returns whether the connection may be reused."""
        self.status = err.status
        keep_alive = self._client.keeps_alive
        self._client.write(
            answers.error_response(
                err,
                keep_alive=keep_alive,
                request_id=self._request_id.decode("ascii"),
                extra=self._client.cors_lines,
                head_only=self._no_body,
                family=shapes.family_of(self._target, self._head.lines),
                limits=self.limits,
            )
        )
        self.is_complete = True
        return keep_alive

    def truncate(self, err: RouterError) -> bool:
        """Make it visible that the rest of a response is missing.

        Returns True if the connection may be closed in the usual way; False if the connection must
        be reset.
        """
        if self._tap is not None and not self._is_sized:
            self.late_error(shapes.of_router(err))
            return True
        # The last chunk is missing, or the body is shorter than Content-Length, so every client
        # sees that the response is incomplete. An error event would be read as a part of the body.
        return self._chunked or self._is_sized
