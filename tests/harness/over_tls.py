"""The raw client and the hostile replica over TLS.

TLS runs in memory over the same plain sockets, so every method keeps its meaning: `rst` resets,
`close` ends the connection without a close_notify, and only `goodbye` sends one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

from tests.harness.client import RawClient
from tests.harness.peer import WAIT_S, Peer
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.virtual_time import at_most
from tests.places import CERT, CERTIFICATES, KEY

OTHER_CERT = str(CERTIFICATES / "other.pem")
NAME = "one.test"  # the host name in CERT
_READ = 256 * 1024


class Sealed(Peer):
    """Adds TLS between the methods of a peer and its socket."""

    def seal(self, context: ssl.SSLContext, *, name: str | None = None) -> None:
        """`name`: the server's name, for the client side; None: this side is the server."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=name is None, server_hostname=name
        )
        self.heard_goodbye = False  # a close_notify arrived: the end is not a truncation

    async def handshake(self) -> None:
        """Raises ssl.SSLError when either side refuses, ConnectionError when it just
        disconnects.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._pull():
                    raise ConnectionResetError("it ended in the handshake") from None
            else:
                await self._flush()
                return

    async def send(self, *parts: bytes) -> None:
        self._tls.write(b"".join(parts))
        await self._flush()

    async def goodbye(self) -> None:
        """Send close_notify, then close."""
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            pass  # the other side's close_notify has not come yet
        await self._flush()
        self.close()

    async def fill(self, size: int = _READ) -> bool:
        if self.ended is not None:
            return False
        try:
            async with asyncio.timeout(at_most(WAIT_S)):
                return await self._fill_forever()
        except TimeoutError:
            raise AssertionError(f"nothing came; {self!r}") from None

    async def _fill_forever(self) -> bool:
        while True:
            if self.ended is not None:
                return False
            try:
                data = self._tls.read(_READ)
            except ssl.SSLWantReadError:
                if not await self._pull():
                    return False
                continue
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                self.ended = "fin"
                self.heard_goodbye = True
                return False
            self.received += data
            return True

    async def _pull(self) -> bool:
        sealed = await self._receive(_READ)
        self._incoming.write(sealed)
        return bool(sealed)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await super().send(self._outgoing.read())


class TlsClient(Sealed, RawClient):
    """A client that trusts the test certificate."""

    @classmethod
    async def connect(cls, port: int, *, receive_buffer: int | None = None) -> TlsClient:
        client = await super().connect(port, receive_buffer=receive_buffer)
        assert isinstance(client, TlsClient)
        context = ssl.create_default_context(cafile=CERT)
        context.set_alpn_protocols(["http/1.1"])
        client.seal(context, name=NAME)
        try:
            async with asyncio.timeout(at_most(WAIT_S)):
                await client.handshake()
        except BaseException:
            client.close()
            raise
        return client


class TlsReplicaConnection(Sealed, ReplicaConnection):
    """One accepted https connection."""

    async def send(self, *parts: bytes) -> None:
        data = b"".join(parts)
        await super().send(data)
        self.count(data)


class TlsReplica(HostileReplica):
    """An HTTPS replica; `refused` counts the handshakes that the router aborted."""

    refused = 0
    cert = CERT

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def _accept(self, listener: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, KEY)
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(listener)
            connection = TlsReplicaConnection(sock, self)
            connection.seal(context)
            connection.is_control = True  # assumed until its first request
            self.connections.append(connection)
            task = loop.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _starts_with_question(self, connection: ReplicaConnection) -> bool:
        """Complete the handshake and read the first head."""
        assert isinstance(connection, TlsReplicaConnection)
        try:
            await connection.handshake()
        except (ssl.SSLError, ConnectionError):
            self.refused += 1
            # The connection is not passed to a behaviour.
            connection.ended = connection.ended or "rst"
            return True
        reader = connection.reader
        while not reader.done and reader.current is None:
            if not await connection._read_more():
                return True
        request = reader.done[0] if reader.done else reader.current
        assert request is not None
        return self.is_question(request)
