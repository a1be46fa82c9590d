"""A network link with a distance: a relay that delays every byte, in front of one engine.

Bytes stay in order. The delay applies to data and to the end of a connection; the kernel accepts
connections at once. `cut` makes the engine unreachable, as the loss of its region does.

Must never: change a byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit


class _Side(asyncio.Protocol):
    """One connection of the link: to the router, or to the engine."""

    def __init__(self, link: Link, other: _Side | None) -> None:
        self.link = link
        self.other = other
        self.early: list[Callable[[_Side], None]] = []  # calls for the other side, before it exists
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.link.sides.add(self)
        if self.other is None:
            self.link.dial(self)

    def data_received(self, data: bytes) -> None:
        self._later(lambda other: other.write(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.sides.discard(self)
        self._later(_Side.close)

    def _later(self, act: Callable[[_Side], None]) -> None:
        asyncio.get_running_loop().call_later(self.link.delay_s, self._pass, act)

    def _pass(self, act: Callable[[_Side], None]) -> None:
        if self.other is None:
            self.early.append(act)
        else:
            act(self.other)

    def join(self, other: _Side) -> None:
        self.other = other
        for act in self.early:
            act(other)
        self.early.clear()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class Link:
    """A relay to the engine at `url`; a round trip takes `rtt_s` seconds more through it."""

    def __init__(self, url: str, rtt_s: float) -> None:
        target = urlsplit(url)
        self._host, self._port = target.hostname, target.port
        self.delay_s = rtt_s / 2.0
        self.sides: set[_Side] = set()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._dials: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        """Accept connections; the address is the same after each `cut`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Side(self, None), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse new connections, and reset the present connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for side in list(self.sides):
            if side.transport is not None:
                side.transport.abort()
        for dial in list(self._dials):
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)

    def dial(self, near: _Side) -> None:
        dial = asyncio.get_running_loop().create_task(self._dial(near))
        self._dials.add(dial)
        dial.add_done_callback(self._dials.discard)

    async def _dial(self, near: _Side) -> None:
        far = _Side(self, near)
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, self._host, self._port)
        except OSError:
            near.close()
            return
        near.join(far)


@asynccontextmanager
async def linked(url: str, rtt_s: float) -> AsyncIterator[Link]:
    """A link to an engine, cut at the end."""
    link = Link(url, rtt_s)
    await link.open()
    try:
        yield link
    finally:
        await link.cut()
        await asyncio.sleep(0)
