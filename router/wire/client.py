"""A client's connection: reads one request at a time, and notices when the client disconnects.

Reading is never paused for longer than one turn of the event loop. A paused transport hides the
client's FIN and RST, so the request of a client that has left would keep a GPU busy. Bytes that a
client sends before the previous response has ended are buffered, up to `limits.early_data` bytes.
If a client sends more, its connection is closed.

While the connection reads a request, it writes to the transport and sets the deadline itself. While
a request is running, the `ClientExchange` of the request writes and sets the deadlines. When the
client disconnects or stops reading, the connection notifies the exchange in the same callback.

Must never: choose a replica, decide about a retry, await anything.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from typing import Final, cast

from mypy_extensions import mypyc_attr, trait

from router.config.model import Cors as CorsConfig, Limits, Timeouts
from router.core.clock import monotonic
from router.core.errors import Reason, RouterError
from router.core.tally import Tally
from router.wire.body_rate import BodyRate
from router.wire.connections import Connections
from router.wire.handshake import Handshake
from router.wire.http1 import answers
from router.wire.http1.error_shapes import OPENAI, family_of
from router.wire.http1.heads import RequestHead
from router.wire.http1.request_reader import COMPLETE, HEAD, HEADED, PASSES, RequestReader
from router.wire.linger import LINGER_S, Linger
from router.wire.origins import INSIDE, Counted
from router.wire.outbox import Outbox
from router.wire.sweep import NEVER, Sweeper
from router.wire.turn import COPY, DECODE, LARGE_READ, LONG, SCAN

# A connection without a request for this many seconds may be closed so that a new connection can be
# accepted.
QUIET_S: Final = 1.0
# The router writes a long response of its own in pieces of this many bytes.
PIECE: Final = 64 * 1024

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


@trait
class ClientExchange(ABC):
    """A running request, as seen by the connection of its client."""

    __slots__ = ()

    @abstractmethod
    def client_gone(self, reason: Reason) -> None: ...

    @abstractmethod
    def client_paused(self) -> None: ...

    @abstractmethod
    def client_resumed(self) -> None: ...

    @abstractmethod
    def crashed(self, err: Exception) -> None:
        """Called when a callback for this request raised an exception: a defect of the router.

        Logs the error and ends the request, with an error response if that is still possible. Must
        not raise.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(ABC):
    """The code that handles the requests of all client connections."""

    __slots__ = ()

    @abstractmethod
    def check_head(self, head: RequestHead) -> None:
        """Called before the body of a request is read.

        Raises RouterError to refuse the request. Sets `head.passes` if a `Tunnel` is to carry the
        body.
        """

    @abstractmethod
    def start(
        self, client: ClientConnection, head: RequestHead, body: list[bytes], size: int
    ) -> None:
        """Handles a request that has arrived completely.

        Sets `client.exchange`, or sends the response at once and calls `client.done`.
        """

    @abstractmethod
    def hand_over(self, client: ClientConnection, head: RequestHead, early: bytes) -> None:
        """Takes over the transport of a request for which `check_head` set `passes`.

        `early` contains the bytes of the request's body that have already arrived.
        """

    @abstractmethod
    def relieve(self, peer: str, head: RequestHead, body_bytes: int) -> bool:
        """Called when too many connections are open (`body_bytes` is 0), or when the memory for
        request bodies is exceeded by `body_bytes` bytes.

        Evicts waiting requests of flows that use more than the flow of this request. Returns
        whether this request may continue.
        """

    @abstractmethod
    def refused(self, client: ClientConnection, head: RequestHead | None, err: RouterError) -> str:
        """Logs and counts a request that was refused before `start`. Returns its request ID."""

    @abstractmethod
    def log_defect(self, err: Exception) -> None:
        """Logs an exception that is a defect of the router."""


class Front(Connections):
    """What all client connections share and call: settings, the handler, and the connections."""

    def __init__(
        self,
        handler: Handler,
        sweeper: Sweeper,
        limits: Limits,
        timeouts: Timeouts,
        *,
        tally: Tally | None = None,
        outbox: Outbox | None = None,
        via: bytes,
        max_clients: int,
        allow_half_close: bool,
        cors: CorsConfig = CorsConfig(),  # noqa: B008  (frozen)
    ) -> None:
        super().__init__(
            sweeper,
            limits,
            timeouts,
            tally=tally,
            outbox=outbox,
            via=via,
            max_clients=max_clients,
            allow_half_close=allow_half_close,
            cors=cors,
        )
        self.handler = handler
        self.clients: set[ClientConnection] = set()
        # The number of connections of each process with the same sockets, and which one is this.
        self.counts: list[int] | memoryview = [0]
        self.slot = 0

    def join(self, client: ClientConnection) -> None:
        """Counts a new connection."""
        self.clients.add(client)
        self.count()
        self.origins.join(client)

    def leave(self, client: ClientConnection) -> None:
        """Takes a connection out of those that are counted."""
        self.clients.discard(client)
        self.count()
        self.lingering.pop(client, None)
        self.origins.leave(client)

    def count(self) -> None:
        self.counts[self.slot] = len(self.clients)

    def takes(self, client: ClientConnection, now: float) -> bool:
        """Return whether a new connection may stay although it exceeds the soft limit.

        If possible, a connection is closed instead whose request was refused, or that waits for a
        request. Otherwise the new
        connection stays until the head of its request arrives; the head decides whether the
        connection may stay. Returns False if the maximum number of connections is exceeded.
        """
        quiet: Counted | None = next(iter(self.lingering), None)
        if quiet is None:
            quiet = self.origins.quiet(client, now)
        if quiet is not None:
            quiet.shed()
        return len(self.clients) + self._reserved <= self._max_clients


class HeldBytes:
    """The bytes of one connection in `Front.held_bytes`: those of the request's body, and those of
    an unfinished head and of early data."""

    __slots__ = ("_body", "_front", "early")

    def __init__(self, front: Front) -> None:
        self._front = front
        self._body = 0
        self.early = 0

    def count_body(self, size: int, reader: RequestReader, peer: str) -> None:
        """Sets the bytes of the body of the request from `peer`. Raises RouterError (MEMORY_LIMIT).

        If all connections hold too many bytes, waiting requests of larger flows are evicted first.
        """
        front = self._front
        front.held_bytes += size - self._body
        self._body = size
        if front.held_bytes > front.bodies_total:
            self._make_room(reader, peer)

    def count_early(self, reader: RequestReader, peer: str) -> None:
        """Sets the bytes of an unfinished head and of early data. See `count_body`."""
        front = self._front
        size = reader.waiting_bytes
        grown = size - self.early
        front.held_bytes += grown
        self.early = size
        if grown > 0 and front.held_bytes > front.bodies_total:
            self._make_room(reader, peer)

    def _make_room(self, reader: RequestReader, peer: str) -> None:
        front = self._front
        missing = front.held_bytes - front.bodies_total
        if not front.handler.relieve(peer, reader.head, missing):
            raise RouterError(
                Reason.MEMORY_LIMIT, "too many request bodies in memory", retry_after_s=1
            )

    def release_body(self) -> None:
        self._front.held_bytes -= self._body
        self._body = 0

    def release(self) -> None:
        """Releases all bytes of the connection."""
        self.release_body()
        self._front.held_bytes -= self.early
        self.early = 0


class ClientConnection(Counted):
    """One client connection, HTTP/1.0 or 1.1. This object is the asyncio protocol of its transport.

    The class does not derive from `asyncio.Protocol`: compiled code would look up each attribute by
    name.
    """

    __slots__ = (
        "_body_rate",
        "_places",
        "_reader",
        "_requests",
        "_rest",
        "_rest_keeps",
        "_tls",
        "_turn_has_ended",
        "_waits_since",
        "closing",
        "deadline",
        "exchange",
        "front",
        "half_closed",
        "held",
        "lingers",
        "paused",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(
        self, front: Front, tls: ssl.SSLContext | None = None, *, is_within: bool = False
    ) -> None:
        """`is_within`: the other end of the connection is in this process."""
        super().__init__()
        self.front = front
        self._tls = tls
        self._places = 1 if is_within else 0  # the places that this connection has reserved
        self._reader = RequestReader(front.limits, front.via, front.plans, front.turn)
        self.exchange: ClientExchange | None = None
        self.deadline = NEVER
        self.half_closed = False
        self.paused = False  # the client reads more slowly than the router writes
        # The connection reads no more requests, because it is lost or about to end.
        self.closing = False
        self.lingers = Linger(front)
        self.held = HeldBytes(front)
        # Received bytes are not handled before the next turn of the event loop.
        self._turn_has_ended = False
        self._requests = 0
        # The time since which the connection has waited for its next request, or for its head.
        self._waits_since = 0.0
        self._body_rate: BodyRate | None = None  # of a body that does not arrive with its head
        # The unwritten rest of a long response of the router itself: the client reads too slowly.
        self._rest = memoryview(b"")
        self._rest_keeps = False  # whether the connection stays open after it

    # -- transport callbacks ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        front = self.front
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        if peer:  # a connection that was already reset has no peer address, so `peer` is empty
            self.peer = peer[0] if isinstance(peer, tuple) else "unix"
        limits = front.limits
        self.transport.set_write_buffer_limits(limits.write_high, limits.write_low)
        if front.tally is not None:
            front.tally.client_connections += 1
        front.join(self)
        if self._places:
            front.reserve(self._places)
        self._waits_since = now = monotonic()
        self.deadline = now + front.timeouts.head_s
        front.sweeper.add(self)
        if len(front.clients) > front.soft_clients and not front.takes(self, now):
            if self._tls is None:
                self._refuse(_too_many())
            else:
                front.handler.refused(self, None, _too_many())
                self.abort(Reason.NO_FILES)
        elif self._tls is not None:
            # A TLS handshake has the same deadline as the head of a request.
            Handshake(
                self.transport, as_protocol(self), self._tls, front.timeouts.head_s, self._secured
            )

    def _secured(self, transport: asyncio.Transport | None) -> None:
        """Called when the TLS handshake is over. `transport` is None if the handshake failed."""
        front = self.front
        if transport is None or self.transport.is_closing():
            self.transport.abort()
            self.connection_lost(None)
            return
        self.transport = transport
        transport.set_write_buffer_limits(front.limits.write_high, front.limits.write_low)
        self._waits_since = monotonic()
        self.deadline = self._waits_since + front.timeouts.head_s

    def write(self, data: bytes) -> None:
        """Writes to the client through the `Outbox`."""
        self.front.outbox.write(self.transport, data)

    def data_received(self, data: bytes) -> None:
        if len(data) >= LARGE_READ:
            self._end_turn()
        if self.closing:
            if self.lingers.since:
                self.deadline = self.lingers.deadline(monotonic())
            return
        self._handle(data)

    def _handle(self, data: bytes) -> None:
        """Reads received bytes, and starts the request if it is complete."""
        try:
            try:
                self._pump(data)
            except RouterError as err:
                if self.exchange is not None:
                    self.abort(err.reason)
                else:
                    self._refuse(err)
        except Exception as err:  # a defect of the router
            exchange, handler = self.exchange, self.front.handler
            if exchange is not None:
                exchange.crashed(err)
                return
            handler.log_defect(err)
            try:
                self._refuse(RouterError(Reason.INTERNAL, "an internal error of the router"))
            except Exception as again:
                handler.log_defect(again)
                self.abort(Reason.INTERNAL)

    def _end_turn(self) -> None:
        """Continues reading in a later turn of the event loop, first with the buffered bytes.

        Reading is paused only until then, and until a body is decoded. During a longer pause a
        disconnect would not be noticed.
        """
        if self._turn_has_ended or self.transport.is_closing():
            return
        self._turn_has_ended = True
        if not self.half_closed:  # pausing and resuming would report the client's FIN again
            self.transport.pause_reading()
        self.front.turn.wait(self.on_turn)

    def on_turn(self) -> None:
        self._turn_has_ended = False
        transport = self.transport
        protocol: object = transport.get_protocol()
        # A tunnel that has taken over the transport pauses and resumes the reading itself.
        if transport.is_closing() or protocol is not self:
            return
        if not self.half_closed:
            transport.resume_reading()
        reader = self._reader
        if self._rest:
            self._write_rest(monotonic())
        elif self.closing:
            return
        elif reader.is_behind:
            self._handle(b"")
        elif self.exchange is None and not self.paused:
            early, reader.early = reader.early, b""
            if early or reader.state == COMPLETE:
                self._handle(early)

    def eof_received(self) -> bool:
        if self.closing:
            return False
        if self._rest:
            self.half_closed = True
            return True
        if self.exchange is not None or self._turn_has_ended:  # the request may have arrived
            if self.front.allow_half_close:
                self.half_closed = True
                return True
            # A proxy cannot distinguish a half-close from a disconnect. To continue generating for
            # a client that has left is the more expensive mistake (HAProxy: `abortonclose`).
            if self.exchange is None:
                self.transport.abort()
            else:
                self.abort(Reason.CLIENT_GONE)
        elif self._reader.started:
            self._refuse(RouterError(Reason.BAD_REQUEST, "the request is incomplete"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        front = self.front
        reader = self._reader
        if not self.closing and self.exchange is None and reader.started:
            gone = RouterError(Reason.CLIENT_GONE, "the client disconnected during its request")
            front.handler.refused(self, reader.known_head, gone)
        self.deadline = NEVER
        self.closing = True
        front.leave(self)
        front.sweeper.discard(self)
        if self._places:
            front.reserve(-self._places)
            self._places = 0
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_gone(Reason.CLIENT_GONE)
        self._reader.discard()
        self.held.release()
        self._rest = memoryview(b"")
        self._reader.close()

    def pause_writing(self) -> None:
        self.paused = True
        if self.exchange is not None:
            self.exchange.client_paused()

    def resume_writing(self) -> None:
        self.paused = False
        if self.exchange is not None:
            self.exchange.client_resumed()
        elif self._rest:
            self._write_rest(monotonic())
        elif not self.closing:
            self._waits_since = monotonic()
            self.deadline = self._waits_since + self.front.keep_alive_s
            if self._reader.early:
                self._end_turn()

    def on_deadline(self, now: float) -> None:
        reader = self._reader
        if self.closing:
            self.deadline = NEVER
            self.transport.abort()
        elif self.exchange is not None:
            self.deadline = NEVER
        elif not reader.started:
            if self.paused:
                self.transport.abort()
            self._close(now)
        elif reader.state == HEAD:
            self._refuse(RouterError(Reason.HEAD_TIMEOUT, "the request head took too long"))
        else:
            self._refuse(RouterError(Reason.BODY_TIMEOUT, "the request body stalled"))

    # -- what an exchange uses ----------------------------------------------------------------

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection may serve another request after the present request."""
        return (
            self._reader.head.keep_alive
            and not self.front.last_answers
            and len(self.front.clients) <= self.front.soft_clients
            and not (self.half_closed and not self._reader.early)
            and not self.closing
        )

    @property
    def cors_lines(self) -> bytes:
        """The CORS fields of the present request's response, each with its CRLF."""
        cors = self.front.cors
        return b"" if cors is None else cors.lines(self._reader.head.origin)

    def done(self, keep_alive: bool, now: float) -> None:
        """Called when the response has been written: the next request may be read."""
        self.exchange = None
        self.held.release_body()
        if self.closing:
            return
        if not keep_alive:
            self._close(now)
            return
        reader = self._reader
        reader.reset()
        front = self.front
        self._waits_since = now
        self.deadline = now + (front.timeouts.write_stall_s if self.paused else front.keep_alive_s)
        if reader.early and not self.paused:
            # One buffered request per turn of the event loop: a client may have sent thousands of
            # requests that the router answers without a replica.
            self._end_turn()

    def finish(self, body: bytes, keep_alive: bool, now: float) -> None:
        """Writes the rest of a response of the router itself, as fast as the client reads.

        Then the next request may be read, as after `done`. The body is not copied as a whole.
        """
        self.exchange = None
        self.held.release_body()
        self._reader.reset()
        self._rest, self._rest_keeps = memoryview(body), keep_alive
        self._write_rest(now)

    def _write_rest(self, now: float) -> None:
        turn = self.front.turn
        while self._rest and not self.paused:
            if turn.left <= 0:
                self._end_turn()
                break
            turn.spend(PIECE >> COPY)
            piece, self._rest = self._rest[:PIECE], self._rest[PIECE:]
            self.write(bytes(piece))
        if self._rest:
            self.deadline = now + self.front.timeouts.write_stall_s
        else:
            is_over = self.half_closed and not self._reader.early
            self.done(self._rest_keeps and not is_over, now)

    def abort(self, reason: Reason) -> None:
        """Closes the connection now. Unwritten bytes are lost. The exchange gets `reason`."""
        self.closing = True
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_gone(reason)
        self.transport.abort()

    # -- reading ------------------------------------------------------------------------------

    def _pump(self, data: bytes) -> None:
        """Passes received bytes to the request reader. Starts the request when it is complete."""
        reader = self._reader
        turn = self.front.turn
        fresh, received = not reader.started, 0
        if not data and reader.is_behind:
            reader.decode()
        elif self.exchange is not None or self.paused or reader.early:
            # A response is in progress, or the client does not read its responses. The bytes
            # of its next request are only buffered, up to `limits.early_data` bytes.
            reader.keep(data)
            self.held.count_early(reader, self.peer)
            return
        else:
            if len(data) >= LONG:
                if turn.left <= 0:
                    reader.early = data
                    self._end_turn()
                    self.held.count_early(reader, self.peer)
                    return
                turn.spend(len(data) >> SCAN)
            received = self._read(reader, data)
        if reader.state == COMPLETE:
            self._start(reader)
        elif reader.state == PASSES:
            self._hand_over()
        else:
            self._wait_for_more(received, fresh)
            if reader.is_behind:
                self._end_turn()

    def _read(self, reader: RequestReader, data: bytes) -> int:
        """Reads bytes of one request. Returns how many were not only kept."""
        rest = reader.feed(data)
        if reader.state == HEADED:
            self._check_head(reader.head)
            reader.begin_body()
            if rest:
                reader.feed(rest)
        if reader.waiting_bytes != self.held.early:
            self.held.count_early(reader, self.peer)
        return len(data) - len(reader.early)

    def _start(self, reader: RequestReader) -> None:
        """Starts a complete request, or waits for a turn with work left."""
        self.deadline = NEVER
        body_bytes = reader.body_bytes
        if body_bytes:
            self.held.count_body(body_bytes, reader, self.peer)
            if body_bytes >= LONG:
                turn = self.front.turn
                if turn.left <= 0:
                    self._end_turn()
                    return
                turn.spend(body_bytes >> DECODE)
        self._requests += 1
        self.front.handler.start(self, reader.head, reader.take_body(), body_bytes)

    def _hand_over(self) -> None:
        """Hands the transport over to another protocol, such as a `Tunnel`.

        That protocol must call `connection_lost` of this object when the connection is lost.
        """
        reader = self._reader
        early, reader.early = reader.early, b""
        self.held.count_early(reader, self.peer)
        # Two open files of the connection to the local server, and one of that server.
        self._places += 1
        self.front.reserve(1)
        self.closing = True
        self.deadline = NEVER
        self.front.outbox.flush()
        self.front.handler.hand_over(self, reader.head, early)

    def _check_head(self, head: RequestHead) -> None:
        """Raises RouterError to refuse a request before its body is read."""
        front = self.front
        front.handler.check_head(head)
        if len(front.clients) > front.soft_clients and self.peer != INSIDE:
            may_go_on = front.handler.relieve(self.peer, head, 0)
            if not may_go_on and front.origins.is_largest(self):
                raise _too_many()
        if head.has_body and not head.passes:
            if (head.content_length or 0) > front.body_most:
                return  # `begin_body` refuses the request next
            self._body_rate = None
            if head.expect_continue:
                self.write(_CONTINUE)

    def _wait_for_more(self, received: int, fresh: bool) -> None:
        front = self.front
        now = monotonic()
        if self._reader.state == HEAD:
            if fresh and self._requests and self._reader.started:
                # The deadline of a head is set at its first byte. Later bytes do not extend it.
                self._waits_since = now
                self.deadline = now + front.timeouts.head_s
            self.held.count_early(self._reader, self.peer)
            return
        if self._reader.early:
            self._end_turn()
        self.held.count_body(self._reader.held_bytes, self._reader, self.peer)
        self.deadline = now + front.timeouts.body_idle_s
        if not received:
            return  # a part was decoded
        rate = self._body_rate
        if rate is None:
            rate = self._body_rate = BodyRate(front.timeouts, now)
        if rate.is_too_low(received, now):
            raise RouterError(Reason.BODY_TIMEOUT, "the request body was too slow")

    # -- closing ------------------------------------------------------------------------------

    def _refuse(self, err: RouterError) -> None:
        """Sends an error response, then closes in a way that lets the client read the response."""
        if self.closing:
            return
        front = self.front
        head = self._reader.known_head
        request_id = front.handler.refused(self, head, err)
        self.write(
            answers.error_response(
                err,
                keep_alive=False,
                request_id=request_id,
                extra=self.cors_lines,
                head_only=head is not None and head.method == b"HEAD",
                family=OPENAI if head is None else family_of(head.target, head.lines),
            )
        )
        self._reader.discard()
        self.held.release()
        self.closing = True
        front.outbox.flush()
        now, deadline = monotonic(), 0.0
        if len(front.clients) <= front.soft_clients:
            deadline = self.lingers.begin(self, self.transport, now, _may_send_more(head))
        self.deadline = deadline or now + LINGER_S
        if not deadline:
            self.transport.close()

    def _close(self, now: float) -> None:
        if not self.closing:
            self.closing = True
            # The transport closes when its write buffer is empty, or else at this deadline.
            self.deadline = now + self.front.timeouts.write_stall_s
            self.front.outbox.flush()
            self.transport.close()

    def is_quiet(self, now: float, *, is_own: bool) -> bool:
        """Return whether this connection has waited for a request for at least `QUIET_S` seconds.

        If `is_own` is false, a connection that has never sent a request counts as quiet at once.
        """
        reader = self._reader
        if self.exchange is not None or self.closing or self.paused:
            return False
        if reader.state != HEAD or reader.early or self._rest:
            return False
        if not self._requests and not is_own:
            return True
        return self._waits_since + QUIET_S <= now

    def shed(self) -> None:
        """Closes this connection, which has no request, so that another may stay open."""
        front, reader = self.front, self._reader
        if reader.started and not self.closing:
            front.handler.refused(self, reader.known_head, _too_many())
        self.closing = True
        front.leave(self)
        self.transport.abort()

    def shut(self, since: float) -> None:
        """Closes the connection if it has waited for a request since the time `since` or longer.

        Called while the router drains. A busy connection closes after its response, because
        `keeps_alive` is then false.
        """
        reader = self._reader
        is_waiting = self.exchange is None and not self.closing and not self._rest
        is_waiting = is_waiting and not reader.started and not reader.early
        if is_waiting and self._waits_since <= since:
            self._close(monotonic())
        elif self.lingers.is_shut(monotonic()):
            self.transport.abort()


def _may_send_more(head: RequestHead | None) -> bool:
    """Return whether the client of a refused request may still send. `head`: if it was read."""
    if head is None or head.chunked or head.content_length is not None:
        return True
    # A head that was refused may not have been read up to its Content-Length.
    return head.method in (b"POST", b"PUT", b"PATCH")


def _too_many() -> RouterError:
    return RouterError(Reason.NO_FILES, "too many connections", retry_after_s=1)


def as_protocol(connection: ClientConnection) -> asyncio.Protocol:
    """Return `connection` itself with the type `asyncio.Protocol`, which asyncio expects."""
    return cast("asyncio.Protocol", connection)
