"""A tunnel copies bytes between a client's connection and a local server, for one request.

A tunnel is used for requests that the router answers itself but must not hold in memory, such as
the upload of a file of a gigabyte. A tunnel forwards each piece as it arrives. Both directions
apply backpressure, so a tunnel pauses reading from the client. Other requests use a GPU, and while
reading is paused the router would not notice that their client has disconnected. The request of a
tunnel only uses a disk, so a disconnect may be noticed late. The local server closes its connection
after its response, and then the tunnel closes the client's connection.

Must never: interpret the forwarded bytes, except the status and the length of the response; forward
a client's secret that is not meant for the local server.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from router.config.model import Timeouts
from router.core.clock import monotonic
from router.core.errors import Reason, RouterError
from router.wire.body_rate import BodyRate
from router.wire.client import ClientConnection
from router.wire.http1 import answers
from router.wire.http1.heads import RequestHead
from router.wire.sweep import NEVER, Sweeper
from router.wire.turn import Turn

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([2-5][0-9]{2}) ")
_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?([0-9]{1,18})\r\n")

# With more unsent bytes for the local server than this, reading from the client is paused.
FAR_HIGH: Final = 256 * 1024
# The memory of one tunnel and its local server: the bytes of a read at each end, unsent bytes, and
# the piece of a file that is written next.
TUNNEL_BYTES: Final = 1024 * 1024


# A chunked body is forwarded in pieces of this many bytes. The local server needs about 4 us for
# each chunk, which has two line ends.
_PACED: Final = 4 * 1024
_LINE_WORK: Final = 2


class _Pace:
    """Forwards a chunked body, in each turn of the event loop only as much as is read in time."""

    __slots__ = ("_rest", "_tunnel", "_turn", "is_behind")

    def __init__(self, tunnel: Tunnel, turn: Turn) -> None:
        self._tunnel = tunnel
        self._turn = turn
        self._rest = b""
        self.is_behind = False  # bytes wait for a later turn

    def write(self, data: bytes) -> None:
        self._rest += data
        if not self.is_behind:
            self.on_turn()

    def on_turn(self) -> None:
        turn, data, at = self._turn, self._rest, 0
        while at < len(data) and turn.left > 0:
            piece = data[at : at + _PACED]
            at += len(piece)
            turn.spend(_LINE_WORK * piece.count(b"\n") + 1)
            self._tunnel.forward(piece)
        self._rest = data[at:]
        was_behind, self.is_behind = self.is_behind, at < len(data)
        if self.is_behind:
            turn.wait(self.on_turn)
        if self.is_behind != was_behind:
            self._tunnel.pause_or_resume()


class LocalServer(Protocol):
    """The server to which tunnels lead, such as the batch server."""

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol]
    ) -> Awaitable[asyncio.BaseTransport]:
        """Opens a connection whose asyncio protocol is made by `factory`.

        Raises OSError; ConnectionAbortedError if the server has stopped.
        """


class TunnelEnd(Protocol):
    """The object that is notified when a tunnel ends."""

    def passed(self, tunnel: Tunnel, reason: Reason) -> None: ...


class Tunnel(asyncio.Protocol):
    """The client's end of a tunnel.

    This object replaces the `ClientConnection` as the asyncio protocol of the client's transport.
    """

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
        """Stores the arguments; `start` opens the tunnel.

        `early`: bytes of the request's body that have already arrived. `introduction`: header lines
        with the owner ID of the client, each with a CRLF before it.
        """
        self.client = client
        self.head = head
        self.request_id = request_id
        self.arrived = monotonic()
        self.bytes_in = 0
        self.bytes_out = 0
        self.status = 0  # the status of the response; 0 before the response begins
        self._whole = -1  # the size of the whole response in bytes; -1 if it is unknown
        self._owner = owner
        self._sweeper = sweeper
        self._timeouts = timeouts
        self._early = early
        self._introduction = introduction
        # The bytes of the request's body that have not arrived; meaningless for a chunked body.
        self._left = head.content_length or 0
        self._far: asyncio.Transport | None = None
        self._far_closed = False
        self._far_is_full = False
        self._pace = _Pace(self, client.front.turn) if head.chunked else None
        self._over = False
        self._task: asyncio.Task[None] | None = None
        self._rate = BodyRate(timeouts, self.arrived)
        self.deadline = NEVER  # While the connection is opened, the client does not delay anything.

    def start(self, server: LocalServer) -> None:
        """Takes over the client's transport and opens the connection to the local server."""
        transport = self.client.transport
        transport.set_protocol(self)
        transport.pause_reading()
        self._sweeper.add(self)
        self._task = asyncio.get_running_loop().create_task(self._open(server))

    async def _open(self, server: LocalServer) -> None:
        try:
            await server.connect(lambda: FarEnd(self))
        except ConnectionAbortedError:
            self._refuse(Reason.DRAINING)
        except Exception as err:
            self._refuse(Reason.NO_FILES if isinstance(err, OSError) else Reason.INTERNAL)

    def _refuse(self, reason: Reason) -> None:
        """Sends an error response, because the connection to the server could not be opened."""
        transport = self.client.transport
        if self._over or transport.is_closing():
            return
        err = RouterError(reason, "this cannot be answered now", retry_after_s=1)
        name = self.request_id.decode("ascii")
        cors = self.client.cors_lines
        transport.write(answers.error_response(err, keep_alive=False, request_id=name, extra=cors))
        self.status = err.status
        self._end(reason)
        self._close()

    # -- the client's side --------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self._left -= len(data)
        far = self._far
        now = monotonic()
        if self._far_closed:
            self.deadline = self.client.lingers.deadline(now)
        if far is None or self._far_closed:
            return
        self.deadline = now + self._timeouts.write_stall_s
        if self._rate.is_too_low(len(data), now):
            self._end(Reason.BODY_TIMEOUT)
            self.client.transport.abort()
            return
        if self._pace is None:
            far.write(data)
        else:
            self._pace.write(data)

    def forward(self, data: bytes) -> None:
        """Writes a piece of the request's body to the local server."""
        if self._far is not None and not self._far_closed and not self._far.is_closing():
            self._far.write(data)

    def eof_received(self) -> bool:
        return False  # a FIN of the client counts as a disconnect

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
        """Ends the tunnel: for `write_stall_s` seconds no bytes were forwarded in any direction."""
        self._end(Reason.INTERNAL if self._far_closed else Reason.BODY_TIMEOUT)
        self.client.transport.abort()

    # -- the far side -------------------------------------------------------------------------

    def joined(self, far: asyncio.Transport) -> None:
        """Called when the connection to the local server is open. Sends the request's head."""
        if self._over or self.client.transport.is_closing():
            far.abort()
            return
        self._far = far
        self._touch()
        far.set_write_buffer_limits(FAR_HIGH)
        early, self._early = self._early, b""
        self.bytes_in = len(early)
        self._left -= len(early)
        self._rate.begin(monotonic())
        far.write(request_head(self.head, self.request_id, self._introduction))
        if self._pace is not None:
            self._pace.write(early)
        elif early:
            far.write(early)
        self.pause_or_resume()

    def answer(self, data: bytes) -> None:
        """Forwards bytes of the response to the client."""
        if not self.status:
            data = self._learn(data)
        self.bytes_out += len(data)
        self._touch()
        if not self.client.transport.is_closing():
            self.client.transport.write(data)

    def _learn(self, data: bytes) -> bytes:
        """Sets the status and the size of the response from its first piece.

        Returns the piece, with the CORS fields behind the status line.
        """
        found = _STATUS.match(data)
        if found is None:
            return data
        cors = self.client.cors_lines
        if cors:
            line, _, rest = data.partition(b"\r\n")
            data = line + b"\r\n" + cors + rest
        self.status = int(found.group(1))
        length = _LENGTH.search(data)
        end = data.find(b"\r\n\r\n")
        if length is not None and end > 0 and self.head.method != b"HEAD":
            self._whole = self.bytes_out + end + 4 + int(length.group(1))
        return data

    def hold(self, is_full: bool) -> None:
        """Pauses or resumes reading from the client.

        Called when the write buffer of the connection to the local server is full, or has room
        again.
        """
        self._far_is_full = is_full
        if not is_full:
            self._touch()
            self._rate.begin(monotonic())  # The client did not cause the pause.
        self.pause_or_resume()

    def pause_or_resume(self) -> None:
        """Reads from the client, unless the local server or the present turn is too busy."""
        transport = self.client.transport
        if transport.is_closing() or self._far_closed:
            return
        if self._far_is_full or (self._pace is not None and self._pace.is_behind):
            transport.pause_reading()
        else:
            transport.resume_reading()

    def far_gone(self) -> None:
        """Called when the local server has closed its connection, as it does after a response."""
        self._far_closed = True
        transport = self.client.transport
        if self._over or transport.is_closing():
            return
        if self._left > 0 or self.head.chunked:
            # The response is complete before the client has sent its whole request. Closing now
            # would reset the connection, and the client would lose the response.
            self.deadline = self.client.lingers.begin(self.client, transport, monotonic(), True)
            transport.resume_reading()
            return
        self._end(Reason.INTERNAL)
        self._close()

    # -- the end ------------------------------------------------------------------------------

    def _close(self) -> None:
        """Closes the client's connection when its write buffer is empty, or at a deadline.

        The tunnel has ended and is not swept any more. The `ClientConnection` is, so it gets the
        deadline.
        """
        self.client.deadline = monotonic() + self._timeouts.write_stall_s
        self.client.transport.close()

    def _touch(self) -> None:
        if not self._far_closed:
            self.deadline = monotonic() + self._timeouts.write_stall_s

    def _is_answered(self) -> bool:
        """Whether the whole response has been forwarded."""
        if self._whole < 0:
            return self._far_closed and self.status != 0
        return self._whole <= self.bytes_out

    def _end(self, reason: Reason) -> None:
        """Ends the tunnel. `reason`: why, unless the whole response has been forwarded."""
        if self._over:
            return
        self._over = True
        self.deadline = NEVER
        self._pace = None
        self._sweeper.discard(self)
        if self._far is not None:
            self._far.abort()
        self._owner.passed(self, Reason.OK if self._is_answered() else reason)


class FarEnd(asyncio.Protocol):
    """The end of a tunnel at the local server: the asyncio protocol of that connection."""

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
    """Return the request's head for the local server, with `connection: close`."""
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
