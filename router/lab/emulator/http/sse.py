"""Sends a streamed answer on an aiohttp connection, with one synchronous write per token.

aiohttp's own `write` is a coroutine, so it would need a task that wakes for each token. aiohttp
writes the head and the end of the answer. The chunks between them are written directly to the
transport. Writes do not wait for a slow client, because `max_model_len` limits an answer's length.

`Answered`: functions for short answers that are not streamed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec
from aiohttp import HttpVersion11, web


def json_response(body: bytes, status: int = 200, **headers: str) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def json_value(value: Any, status: int = 200) -> web.Response:
    return json_response(msgspec.json.encode(value), status)


def text_response(text: str, content_type: str = "text/plain; charset=utf-8") -> web.Response:
    return web.Response(body=text.encode(), headers={"content-type": content_type})


class Answered(Exception):
    """Raised to end a handler; the client gets the given response."""

    def __init__(self, response: web.Response) -> None:
        super().__init__()
        self.response = response


_RST_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s


class Stream:
    """A stream of events. Bytes that are passed to `send` before `open` are sent after the head.

    After a call of `keep_alive`, comments are sent while there is no other data.
    """

    def __init__(self, request: web.Request, headers: Mapping[str, str] | None = None) -> None:
        self._request = request
        self._transport = request.transport
        self._chunked = request.version >= HttpVersion11
        self._response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", **(headers or {})}
        )
        self._early: list[bytes] | None = []
        self._is_silent = False  # True: nothing was sent since the timer's last check
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._early is None

    async def open(self) -> None:
        """Send the response head, and then the bytes that were passed to `send` before."""
        if self._chunked:
            self._response.enable_chunked_encoding()
        await self._response.prepare(self._request)
        early, self._early = self._early, None
        for payload in early or ():
            self.send(payload)

    def keep_alive(self, comment: bytes, every_s: float, begin: Callable[[], None]) -> None:
        """Send `comment` after every `every_s` seconds without other data, until `stop` is called.

        `begin` is called before each comment. It must open the stream if its head was not sent yet.
        """
        loop = asyncio.get_running_loop()

        def look() -> None:
            if self._is_silent:
                begin()
                self.send(comment)
            self._is_silent = True
            self._timer = loop.call_later(every_s, look)

        self._is_silent = True
        self._timer = loop.call_later(every_s, look)

    def stop(self) -> None:
        """Stop sending comments."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send(self, payload: bytes) -> None:
        if not payload:
            return
        self._is_silent = False
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
        """End the stream normally."""
        await self._response.write_eof()
        return self._response

    async def die(self) -> NoReturn:
        """Close the connection in the middle of the answer, after the bytes sent so far."""
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
    """Wait until the connection is closed, which cancels its handler."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody sets this future")
