"""Joins a client's connection to another connection, byte for byte, for one request and its answer.

A tunnel serves requests that the router answers itself but that must not be held in memory: a file
of a gigabyte passes in the pieces in which it arrives. Both directions apply backpressure. So,
unlike elsewhere, reading from the client is paused here: only a disk waits for the client, not a
GPU, and a disconnect that is noticed a moment later does no harm. The far end closes after its
answer, and then the client's connection closes too.

Must never: read the bytes that pass, except the status and the length of the answer; pass on a
client's secret that is not meant for the far end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, Protocol

from router.config.model import Timeouts
from router.core.errors import Reason, RouterError
from router.wire.client import LINGER_S, ClientConnection
from router.wire.http1 import answers
from router.wire.http1.heads import RequestHead
from router.wire.sweep import NEVER, Sweeper

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([2-5][0-9]{2}) ")
_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?([0-9]{1,18})\r\n")

FAR_HIGH: Final = 256 * 1024  # unsent bytes for the far end above which the client is paused


class LocalServer(Protocol):
    """The destination of a tunnel."""

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol]
    ) -> Awaitable[asyncio.BaseTransport]:
        """Opens a connection for the protocol that `factory` makes. Raises OSError."""


class TunnelEnd(Protocol):
    """The object that is notified when a tunnel ends."""

    def passed(self, tunnel: Tunnel, reason: Reason) -> None: ...


class Tunnel(asyncio.Protocol):
    """The client's end. It replaces the `ClientConnection` at the transport."""

    __slots__ = (
        "_early",
        "_far",
        "_far_closed",
        "_introduction",
        "_left",
        "_over",
        "_owner",
        "_sweeper",
        "_task",
        "_timeouts",
        "_whole",
        "_window_bytes",
        "_window_ends",
        "arrived",
        "bytes_in",
        "bytes_out",
        "client",
        "deadline",
        "head",
        "request_id",
        "status",
    )

    def __init__(
        self,
        client: ClientConnection,
        head: RequestHead,
        request_id: bytes,
        early: bytes,
        introduction: bytes,
        owner: TunnelEnd,
        sweeper: Sweeper,
        timeouts: Timeouts,
    ) -> None:
        """`introduction` has header lines that name the client's owner, each after its CRLF."""
        self.client = client
        self.head = head
        self.request_id = request_id
        self.arrived = monotonic()
        self.bytes_in = 0
        self.bytes_out = 0
        self.status = 0  # the answer's status; 0 if there is none
        self._whole = -1  # the size of the complete answer in bytes; -1 if it is unknown
        self._owner = owner
        self._sweeper = sweeper
        self._timeouts = timeouts
        self._early = early
        self._introduction = introduction
        # Bytes of the body still to come; unknown for a chunked one.
        self._left = head.content_length or 0
        self._far: asyncio.Transport | None = None
        self._far_closed = False
        self._over = False
        self._task: asyncio.Task[None] | None = None
        # the end of the time window in which a minimum of the body must arrive
        self._window_ends = 0.0
        self._window_bytes = 0
        self.deadline = self.arrived + timeouts.write_stall_s

    def start(self, server: LocalServer) -> None:
        """Takes over the client's transport and opens the other end."""
        transport = self.client.transport
        transport.set_protocol(self)
        transport.pause_reading()
        self._sweeper.add(self)
        self._task = asyncio.get_running_loop().create_task(self._open(server))

    async def _open(self, server: LocalServer) -> None:
        try:
            await server.connect(lambda: FarEnd(self))
        except Exception as err:
            self._refuse(Reason.NO_FILES if isinstance(err, OSError) else Reason.INTERNAL)

    def _refuse(self, reason: Reason) -> None:
        """The other end could not be opened."""
        transport = self.client.transport
        if self._over or transport.is_closing():
            return
        err = RouterError(reason, "this cannot be answered now", retry_after_s=1)
        name = self.request_id.decode("ascii")
        transport.write(answers.error_response(err, keep_alive=False, request_id=name))
        self.status = err.status
        self._end(reason)
        transport.close()

    # -- the client's side --------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self._left -= len(data)
        far = self._far
        if far is None or self._far_closed:
            return
        now = monotonic()
        self.deadline = now + self._timeouts.write_stall_s
        self._window_bytes += len(data)
        if now >= self._window_ends:
            timeouts = self._timeouts
            if self._window_bytes < timeouts.body_rate * timeouts.body_rate_over_s:
                self._end(Reason.BODY_TIMEOUT)
                self.client.transport.abort()
                return
            self._open_window(now)
        far.write(data)

    def _open_window(self, now: float) -> None:
        self._window_ends = now + self._timeouts.body_rate_over_s
        self._window_bytes = 0

    def eof_received(self) -> bool:
        return False  # as elsewhere in the router, a FIN of the client counts as a disconnect

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Reason.CLIENT_GONE)
        self.client.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._far is not None:
            self._far.pause_reading()

    def resume_writing(self) -> None:
        self._touch()
        if self._far is not None and not self._far.is_closing():
            self._far.resume_reading()

    def on_deadline(self, now: float) -> None:
        """End the tunnel, because no bytes passed in either direction for `write_stall_s`."""
        self._end(Reason.OK if self._far_closed else Reason.BODY_TIMEOUT)
        self.client.transport.abort()

    # -- the far side -------------------------------------------------------------------------

    def joined(self, far: asyncio.Transport) -> None:
        """The other end is open."""
        if self._over or self.client.transport.is_closing():
            far.abort()
            return
        self._far = far
        far.set_write_buffer_limits(FAR_HIGH)
        early, self._early = self._early, b""
        self.bytes_in = len(early)
        self._left -= len(early)
        self._open_window(monotonic())
        far.write(request_head(self.head, self.request_id, self._introduction) + early)
        self.client.transport.resume_reading()

    def answer(self, data: bytes) -> None:
        """Bytes of the answer."""
        if not self.status:
            self._learn(data)
        self.bytes_out += len(data)
        self._touch()
        if not self.client.transport.is_closing():
            self.client.transport.write(data)

    def _learn(self, data: bytes) -> None:
        """The status of an answer and its length, from the piece that begins it."""
        found = _STATUS.match(data)
        if found is None:
            return
        self.status = int(found.group(1))
        length = _LENGTH.search(data)
        end = data.find(b"\r\n\r\n")
        if length is not None and end > 0:
            self._whole = self.bytes_out + end + 4 + int(length.group(1))

    def hold(self, is_full: bool) -> None:
        """The far end's write buffer is full, or has room again."""
        transport = self.client.transport
        if transport.is_closing():
            return
        if is_full:
            transport.pause_reading()
        else:
            self._touch()
            # the window starts again, because the client did not cause the delay
            self._open_window(monotonic())
            transport.resume_reading()

    def far_gone(self) -> None:
        """The far end has sent its complete answer."""
        self._far_closed = True
        transport = self.client.transport
        if self._over or transport.is_closing():
            return
        if (self._left > 0 or self.head.chunked) and transport.can_write_eof():
            # The answer came before the client's upload ended, so closing now would discard the
            # answer.
            transport.resume_reading()
            transport.write_eof()
            self.deadline = monotonic() + LINGER_S
            return
        self._end(Reason.OK if self.status else Reason.INTERNAL)
        transport.close()

    # -- the end ------------------------------------------------------------------------------

    def _touch(self) -> None:
        if not self._far_closed:
            self.deadline = monotonic() + self._timeouts.write_stall_s

    def _end(self, reason: Reason) -> None:
        if self._over:
            return
        self._over = True
        self.deadline = NEVER
        self._sweeper.discard(self)
        if self._far is not None:
            self._far.abort()
        if (self._far_closed and self.status) or 0 <= self._whole <= self.bytes_out:
            reason = Reason.OK  # the answer is complete, whatever the client does now
        self._owner.passed(self, reason)


class FarEnd(asyncio.Protocol):
    """The other end of a tunnel."""

    __slots__ = ("_tunnel",)

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tunnel.joined(transport)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._tunnel.answer(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._tunnel.far_gone()

    def pause_writing(self) -> None:
        self._tunnel.hold(True)

    def resume_writing(self) -> None:
        self._tunnel.hold(False)


def request_head(head: RequestHead, request_id: bytes, introduction: bytes) -> bytes:
    """The head for the far end: one request, then the connection closes."""
    version = b"1.0" if head.http_1_0 else b"1.1"
    parts = [b"%b %b HTTP/%b\r\nhost: %b" % (head.method, head.target, version, head.host or b"-")]
    parts += [head.joined, introduction]
    if head.chunked:
        parts.append(b"\r\ntransfer-encoding: chunked")
    elif head.content_length is not None:
        parts.append(b"\r\ncontent-length: %d" % head.content_length)
    if head.expect_continue:
        parts.append(b"\r\nexpect: 100-continue")
    parts.append(b"\r\nx-request-id: %b\r\nconnection: close\r\n\r\n" % request_id)
    return b"".join(parts)
