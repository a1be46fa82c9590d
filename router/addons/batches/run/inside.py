"""Opens connections to the data plane inside the process.

Each connection is a socket pair. The data plane serves the other end as a client's connection. So
the request of a batch line needs no port and no TLS, and does not wait in an accept queue behind
other connections. It reaches the router's queue as soon as it is sent. Import only through
`sender.py`: this module imports aiohttp.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace


class Inside(aiohttp.BaseConnector):
    """An aiohttp connector. `accept` makes the data plane's protocol for each connection."""

    def __init__(
        self, accept: Callable[[], asyncio.BaseProtocol], keepalive_timeout: float
    ) -> None:
        super().__init__(limit=0, keepalive_timeout=keepalive_timeout)
        self._accept = accept

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        # `_connect` always runs to its end, because uvloop does not close the other end of the
        # socket pair if the call is cancelled.
        made = asyncio.ensure_future(self._connect())
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            made.add_done_callback(_close)
            raise

    async def _connect(self) -> ResponseHandler:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            theirs.setblocking(False)
            await loop.connect_accepted_socket(self._accept, theirs)
            _, protocol = await loop.create_connection(self._factory, sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return protocol


def _close(made: asyncio.Future[ResponseHandler]) -> None:
    """Closes a connection, because the task that waited for it was cancelled."""
    if not made.cancelled() and made.exception() is None:
        made.result().close()
