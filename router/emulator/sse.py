"""A streamed answer on an aiohttp connection: one synchronous write a token.

aiohttp's own `write` is a coroutine, which would need a task woken per token. The head and the end
go through aiohttp; what lies between is framed here and written to the transport by whoever has
it. Nothing waits for a slow reader: an answer's whole text is bounded by `max_model_len`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import NoReturn

from aiohttp import HttpVersion11, web

_RST_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s


class Stream:
    """Bytes sent before `open` are kept and follow the head."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._transport = request.transport
        self._chunked = request.version >= HttpVersion11
        self._response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8"}
        )
        self._early: list[bytes] | None = []

    async def open(self) -> None:
        """Send the head, and what was kept."""
        if self._chunked:
            self._response.enable_chunked_encoding()
        await self._response.prepare(self._request)
        early, self._early = self._early, None
        for payload in early or ():
            self.send(payload)

    def send(self, payload: bytes) -> None:
        if not payload:
            return
        if self._early is not None:
            self._early.append(payload)
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return  # the handler is about to be cancelled
        if self._chunked:
            payload = b"%x\r\n%b\r\n" % (len(payload), payload)
        transport.write(payload)

    async def close(self) -> web.StreamResponse:
        """End it properly."""
        await self._response.write_eof()
        return self._response

    async def die(self) -> NoReturn:
        """End the connection after what was sent, in the middle of the answer."""
        if self._transport is not None:
            self._transport.close()
        await forever()


async def reset(request: web.Request) -> NoReturn:
    """Answer with a TCP reset."""
    transport = request.transport
    if transport is not None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
        transport.abort()
    await forever()


async def forever() -> NoReturn:
    """Until the connection is gone, which cancels its handler."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody sets this future")
