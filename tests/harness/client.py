"""A client that sends exactly the given bytes and parses responses strictly."""

from __future__ import annotations

import asyncio
import socket

import h11

from tests.harness.peer import Peer
from tests.harness.reading import Response, ResponseReader


class RawClient(Peer):
    """One client connection."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._reader = ResponseReader()
        self._fed = 0

    @classmethod
    async def connect(cls, port: int, *, receive_buffer: int | None = None) -> RawClient:
        """Connect to a port of 127.0.0.1; a small `receive_buffer` gives early backpressure."""
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client = cls(sock)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except BaseException:
            sock.close()
            raise
        return client

    async def recv_response(self, method: str = "GET") -> Response:
        """The next response, complete or (`complete` is False) truncated.

        Fails if the connection ends before a response, or with invalid bytes.
        """
        self._reader.start(method)
        while True:
            self._feed()
            try:
                found = self._reader.advance()
            except h11.RemoteProtocolError as err:
                raise AssertionError(f"not a response ({err}); {self!r}") from None
            if found is not None:
                assert found.status, f"no response; {self!r}"
                self._read = len(self.received) - len(self._reader.surplus)
                return found
            if not await self.fill():
                self._feed()
                self._reader.feed(b"")

    def _feed(self) -> None:
        data = bytes(self.received[self._fed :])
        self._fed = len(self.received)
        if data:
            self._reader.feed(data)

    async def recv_head(self) -> bytes:
        """The raw bytes of the next head."""
        return await self.recv_until(b"\r\n\r\n")

    async def expect_silence_then_close(self) -> None:
        """The connection ends without another byte."""
        before = len(self.received)
        await self.expect_close()
        assert len(self.received) == before, f"unexpected bytes; {self!r}"
