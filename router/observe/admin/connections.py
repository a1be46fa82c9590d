"""Bounds the number of connections of one admin listener.

Other machines may be able to connect without a token. Each connection takes an open file, and the
data plane needs open files as well. At the limit, the oldest connection is closed for each new one,
so clients that send nothing cannot keep others out. A connection counts from its acceptance, so a
TLS handshake that does not go on counts, too.

Must never: read a request, or delay a connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from router.wire.handshake import Handshake

# Maximum number of connections of one listener: probes, scrapers and operators need a few.
MOST: Final = 64
HANDSHAKE_S: Final = 10.0  # The longest time in seconds that a TLS handshake may take.
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
        protocol = self._connections.serve()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
