"""One end of a TCP connection with methods for a scripted conversation.

A plain non-blocking socket driven through the loop, so that a test controls exactly what is sent: a
FIN, a reset, one byte, nothing. Every wait is bounded and fails with what was received.
"""

import asyncio
import socket
import struct
from collections.abc import Iterable
from typing import Literal

from tests.harness.virtual_time import at_most

WAIT_S = 10.0  # upper bound for any single wait; a successful run never comes near it
_READ = 256 * 1024

End = Literal["fin", "rst"]


class Peer:
    """A connected socket, all received bytes, and how the other side ended it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.received = bytearray()
        self.ended: End | None = None
        self._read = 0  # bytes of `received` already returned

    async def send(self, *parts: bytes) -> None:
        """Write everything; raises OSError if the other side has closed."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(at_most(WAIT_S)):
                await loop.sock_sendall(self.sock, b"".join(parts))
        except TimeoutError:
            raise AssertionError(f"the other side takes no bytes; {self!r}") from None

    async def send_pieces(self, pieces: Iterable[bytes]) -> None:
        """Write piece by piece, with a turn of the loop between, so that each arrives alone.

        Stops silently if the other side closes meanwhile.
        """
        try:
            for piece in pieces:
                await self.send(piece)
                await asyncio.sleep(0)
        except OSError:
            pass

    async def fill(self, size: int = _READ) -> bool:
        """Wait for more bytes; False at the other side's end (see `ended`)."""
        if self.ended is not None:
            return False
        try:
            async with asyncio.timeout(at_most(WAIT_S)):
                data = await self._receive(size)
        except TimeoutError:
            raise AssertionError(f"nothing came; {self!r}") from None
        self.received += data
        return bool(data)

    async def _receive(self, size: int) -> bytes:
        """Read the socket once; b"" at the other side's end (see `ended`)."""
        try:
            data = await asyncio.get_running_loop().sock_recv(self.sock, size)
        except OSError:
            self.ended = "rst"
            return b""
        if not data:
            self.ended = "fin"
        return data

    @property
    def unread(self) -> bytes:
        return bytes(self.received[self._read :])

    def take(self, size: int) -> bytes:
        data = bytes(self.received[self._read : self._read + size])
        self._read += len(data)
        return data

    async def recv_until(self, needle: bytes) -> bytes:
        """All unread bytes up to and including the first `needle`."""
        while needle not in self.unread:
            if not await self.fill():
                raise AssertionError(f"ended before {needle!r}; {self!r}")
        return self.take(self.unread.index(needle) + len(needle))

    async def recv_exactly(self, size: int) -> bytes:
        while len(self.received) - self._read < size:
            if not await self.fill():
                raise AssertionError(f"ended before {size} bytes; {self!r}")
        return self.take(size)

    async def expect_close(self) -> End:
        """Read to the end of the connection and return how it ended; bytes before it stay
        readable.
        """
        while await self.fill():
            pass
        assert self.ended is not None
        return self.ended

    def fin(self) -> None:
        """Half-close: send no more bytes, but continue to read."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def rst(self) -> None:
        """Reset the connection at once."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.sock.close()

    @property
    def closed(self) -> bool:
        return self.sock.fileno() < 0

    def __repr__(self) -> str:
        seen = bytes(self.received)
        shown = seen if len(seen) < 600 else seen[:300] + b" ... " + seen[-300:]
        return f"<{type(self).__name__} received {len(seen)} bytes: {shown!r}, ended={self.ended}>"
