"""Starts and stops the admin listeners.

aiohttp is imported only when a listener starts, because the import costs 12 MB of memory and 150
ms. The command `hedgerow check` does not need it. The routes are in `routes.py`. Clients of the
data port cannot reach the admin listeners, and the data plane does not depend on them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from router.observe.admin.actions import AdminActions
from router.observe.admin.authority import Authority
from router.observe.admin.connections import Connections, FindTls, without_tls

if TYPE_CHECKING:
    from aiohttp import web

    from router.observe.families.collector import Collector

CLOSE_TIMEOUT_S = 1.0  # how many seconds requests in progress may take when a listener stops


class Admin:
    """The admin listeners. Call `start`, then `start_probes` if needed, and at last `stop`."""

    def __init__(
        self, actions: AdminActions, collector: Collector, authority: Authority | None = None
    ) -> None:
        """`authority`: decides which requests need a token; `None`: no request needs a token."""
        self._actions = actions
        self._collector = collector
        self._authority = authority or Authority(None)
        self._listeners: list[_Listener] = []

    async def start(self, sockets: Iterable[socket.socket], tls: FindTls = without_tls) -> None:
        """Accepts connections on these listening sockets, with all routes.

        The sockets belong to this object from now on.
        """
        from router.observe.admin.routes import build

        await self._listen(build(self._actions, self._collector, self._authority), sockets, tls)

    async def start_probes(self, sockets: Iterable[socket.socket]) -> None:
        """Accepts connections with only the routes that need no token: probes and scrapes.

        The sockets belong to this object from now on.
        """
        from router.observe.admin.routes import build_probes

        await self._listen(build_probes(self._actions, self._collector, self._authority), sockets)

    async def _listen(
        self, app: web.Application, sockets: Iterable[socket.socket], tls: FindTls = without_tls
    ) -> None:
        from aiohttp import web

        from router.observe.admin.routes import KEEP_ALIVE_S, LINGER_S

        runner = web.AppRunner(
            app,
            access_log=None,
            # A small body could take seconds to decompress, also without the token.
            auto_decompress=False,
            handle_signals=False,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
            shutdown_timeout=CLOSE_TIMEOUT_S,
        )
        listener = _Listener(runner, [])
        self._listeners.append(listener)
        await runner.setup()
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        for sock in sockets:
            connections = Connections(runner.server, tls)
            server = await loop.create_server(connections, sock=sock)
            listener.sockets.append((server, connections))

    def close(self) -> None:
        """Stops listening. Requests on open connections are still answered until `stop`."""
        for listener in self._listeners:
            for server, _ in listener.sockets:
                server.close()

    async def stop(self) -> None:
        """Stops listening and ends open requests.

        It takes at most about three CLOSE_TIMEOUT_S for each listener.
        """
        self.close()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            for _, connections in listener.sockets:
                connections.stop()
            try:
                await asyncio.wait_for(listener.runner.cleanup(), 3 * CLOSE_TIMEOUT_S)
            except TimeoutError:
                pass


class _Listener(NamedTuple):
    """One port, which may have a socket for each of its addresses."""

    runner: web.AppRunner
    sockets: list[tuple[asyncio.Server, Connections]]
