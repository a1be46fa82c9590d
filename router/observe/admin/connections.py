"""Bounds the number of connections of one admin listener, and the work that they cause.

Other machines may be able to connect without a token. Each connection takes an open file, and the
data plane needs open files as well. At the limit, the oldest connection is closed for each new one,
so clients that send nothing cannot keep others out. A connection counts from its acceptance, so a
TLS handshake that does not go on counts, too.

aiohttp needs about 3 us for each chunk of a body, also if the request has no token. So received
bytes are passed on in slices, and the slices of all connections together need at most a fifth of
the CPU time (`wire/turn.py`). Requests without a long body are not delayed.

Must never: read a request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from router.wire.handshake import Handshake
from router.wire.turn import Turn

# Maximum number of connections of one listener: probes, scrapers and operators need a few.
MOST: Final = 64
HANDSHAKE_S: Final = 10.0  # The longest time in seconds that a TLS handshake may take.
_SLICE: Final = 4096  # Bytes that are passed on at once.
_COST: Final = 3  # The work of one byte. One slice uses up a turn.
_TURN_S: Final = 0.01
# Returns the TLS context of a new connection; None: without TLS.
FindTls = Callable[[], ssl.SSLContext | None]


def without_tls() -> None:
    """The `FindTls` of a listener without TLS."""


class Connections:
    """The connections of one listening socket. The instance is the socket's protocol factory."""

    def __init__(self, serve: Callable[[], asyncio.Protocol], tls: FindTls = without_tls) -> None:
        """`serve`: returns the protocol that reads the requests of one connection."""
        self.serve = serve
        self.tls = tls
        self.turn = Turn(_TURN_S)
        self.handshakes: set[asyncio.Transport] = set()  # Sockets whose TLS handshake goes on.
        self._open: list[asyncio.Transport] = []  # All sockets, the oldest one first.

    def __call__(self) -> asyncio.Protocol:
        return _Accepted(self)

    def accepted(self, socket: asyncio.Transport) -> None:
        """Counts a new connection, and closes the oldest connection if there are too many."""
        self._open = [known for known in self._open if not known.is_closing()]
        if len(self._open) >= MOST:
            self._open.pop(0).abort()
        self._open.append(socket)

    def stop(self) -> None:
        """Ends the TLS handshakes in progress. The caller ends the requests."""
        for socket in [*self.handshakes]:
            socket.abort()


class _Accepted(asyncio.Protocol):
    """A connection until its TLS handshake is over, or for one call if there is no TLS."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connections, socket = self._connections, cast(asyncio.Transport, transport)
        connections.accepted(socket)
        tls = connections.tls()
        if tls is None:
            self._pass_on(socket)
            return
        connections.handshakes.add(socket)
        Handshake(socket, self, tls, HANDSHAKE_S, partial(self._secured, socket))

    def _secured(self, socket: asyncio.Transport, transport: asyncio.Transport | None) -> None:
        self._connections.handshakes.discard(socket)
        if transport is None or transport.is_closing():
            socket.abort()
        else:
            self._pass_on(transport)

    def _pass_on(self, transport: asyncio.Transport) -> None:
        # uvloop delivers the first bytes after this call, also those that came with the handshake.
        protocol = _Sliced(self._connections, transport)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class _Sliced(asyncio.Protocol):
    """A connection that passes on its received bytes in slices. Also its transport for aiohttp.

    TLS reports the end of a connection although reading is paused. The bytes before it are passed
    on first, so a request whose client closes at once is served.
    """

    def __init__(self, connections: Connections, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._turn = connections.turn
        self._protocol = connections.serve()
        self._held = b""  # Received bytes that are not passed on yet: one read.
        self._is_waiting = False  # For a turn.
        self._is_paused = False  # By aiohttp.
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(cast(asyncio.Transport, self))

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._is_waiting:
            self.on_turn()

    def on_turn(self) -> None:
        self._is_waiting = False
        if self._is_lost and not self._held:
            self._protocol.connection_lost(None)
            return
        turn = self._turn
        while self._held and turn.left > 0 and not self._is_paused:
            data, self._held = self._held[:_SLICE], self._held[_SLICE:]
            turn.spend(len(data) * _COST)
            self._protocol.data_received(data)
        self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None or not self._held:
            self._held = b""
            self._protocol.connection_lost(exc)
        else:
            self._is_lost = True  # aiohttp is told in the turn after the last slice.
            self._read_on()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._read_on()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._read_on()

    def close(self) -> None:
        """Closes the connection. aiohttp reads no more of it."""
        self._held = b""
        self._transport.close()

    def _read_on(self) -> None:
        if (self._held or self._is_lost) and not (self._is_paused or self._is_waiting):
            self._is_waiting = True
            self._turn.wait(self.on_turn)
        if self._transport.is_closing():
            return
        if self._held or self._is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def __getattr__(self, name: str) -> Any:
        """Return any other method of the transport."""
        return getattr(self._transport, name)
