"""Starts and stops the admin listeners.

aiohttp is imported only when a listener starts, because the import costs 12 MB of memory and 150
ms. The command `hedgerow check` does not need it. The routes are in `routes.py`. Clients of the
data port cannot reach the admin listeners, and the data plane does not depend on them.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple

from router.observe.admin.actions import AdminActions
from router.observe.admin.authority import Authority
from router.observe.admin.connections import Connections

if TYPE_CHECKING:
    from aiohttp import web

    from router.observe.families.collector import Collector

BACKLOG: Final = 128
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

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Returns the host and the port of every listening socket, in the order of the starts."""
        return [
            socket.getsockname()[:2]
            for listener in self._listeners
            for socket in listener.server.sockets
        ]

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Begins to listen, with all routes. Port 0 selects a free port.

        Raises OSError if the address is not available.
        """
        from router.observe.admin.routes import build

        await self._listen(build(self._actions, self._collector, self._authority), host, port, tls)

    async def start_probes(self, host: str, port: int) -> None:
        """Begins to listen, with only the routes that need no token: probes and scrapes.

        Port 0 selects a free port. Raises OSError if the address is not available.
        """
        from router.observe.admin.routes import build_probes

        await self._listen(build_probes(self._actions, self._collector), host, port, None)

    async def _listen(
        self, app: web.Application, host: str, port: int, tls: ssl.SSLContext | None
    ) -> None:
        from aiohttp import web

        from router.observe.admin.routes import KEEP_ALIVE_S, LINGER_S

        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
            shutdown_timeout=CLOSE_TIMEOUT_S,
        )
        await runner.setup()
        try:
            assert runner.server is not None
            connections = Connections(runner.server, tls)
            loop = asyncio.get_running_loop()
            server = await loop.create_server(connections, host, port, backlog=BACKLOG)
        except BaseException:
            await runner.cleanup()
            raise
        self._listeners.append(_Listener(server, connections, runner))

    async def stop(self) -> None:
        """Stops listening and ends open requests.

        It takes at most about three CLOSE_TIMEOUT_S for each listener.
        """
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.server.close()
            listener.connections.stop()
            try:
                await asyncio.wait_for(listener.runner.cleanup(), 3 * CLOSE_TIMEOUT_S)
            except TimeoutError:
                pass


class _Listener(NamedTuple):
    """One listening socket."""

    server: asyncio.Server
    connections: Connections
    runner: web.AppRunner
