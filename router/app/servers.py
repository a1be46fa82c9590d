"""The servers of a router: the data port, the admin port and the probes' port.

`open` does everything that can fail, and `start` begins to accept connections. In between, the
connections of clients wait in the queues of the listening sockets.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from router.app.listeners import ADMIN, BACKLOG, DATA, PROBES, Listeners, address_of
from router.config.admin_checks import is_guarded
from router.config.model import Config
from router.config.tls import PortTls
from router.core.errors import ConfigError
from router.observe.admin.authority import Authority
from router.observe.admin.listener import Admin
from router.wire.client import ClientConnection, Front, as_protocol

if TYPE_CHECKING:
    from router.app.workers.balance import Balance


class Servers:
    """The servers. Call `open`, then `start`, and at last `stop`."""

    def __init__(self, listeners: Listeners, admin: Admin, authority: Authority) -> None:
        """`authority`: decides which requests `admin` answers."""
        self.listeners = listeners
        self.authority = authority
        self.tls = PortTls(None, None)  # The certificates in force.
        self._admin = admin
        self._data: list[asyncio.Server] = []

    def open(self, config: Config) -> None:
        """Reads the certificates, and opens the listening sockets. Raises ConfigError, OSError."""
        self.tls = PortTls(config.tls, config.admin.tls)
        self.listeners.open_all(config)
        self.check(config)

    def check(self, config: Config) -> None:
        """Raises ConfigError if other machines could reach the admin port without a token.

        The address of a socket that systemd has opened need not be the configured address.
        """
        for sock in self.listeners.sockets(ADMIN):
            if sock.family != socket.AF_UNIX and not is_guarded(
                config.admin, sock.getsockname()[0]
            ):
                raise ConfigError(
                    [
                        "admin.token: is missing: other machines can reach the admin port "
                        f"({address_of(sock)}). Set admin.token_file or admin.tls.client_ca"
                    ]
                )

    async def start(self, front: Front, balance: Balance | None = None) -> None:
        """`balance`: spreads the connections of clients over several workers."""
        listeners = self.listeners
        loop = asyncio.get_running_loop()

        def serve() -> asyncio.Protocol:
            return as_protocol(ClientConnection(front, self.tls.data))

        accept = serve
        if balance is not None:
            front.counts, front.slot = balance.counts, balance.slot
            accept = balance.begin(serve)
            front.count()
        for sock in listeners.copies(DATA):
            self._data.append(await loop.create_server(accept, sock=sock, backlog=BACKLOG))
        await self._admin.start(listeners.copies(ADMIN), lambda: self.tls.admin)
        if listeners.sockets(PROBES):
            await self._admin.start_probes(listeners.copies(PROBES))

    def close_data(self) -> None:
        """Stops accepting on the data port. Established connections stay open."""
        for server in self._data:
            server.close()
        self.listeners.close(DATA)

    def close_admin(self) -> None:
        """Stops accepting on the admin port and the probes' port.

        Requests on established connections are still answered.
        """
        self.listeners.close(ADMIN)
        self.listeners.close(PROBES)
        self._admin.close()

    async def stop_admin(self) -> None:
        """Stops the admin port and the probes' port, and ends their requests."""
        self.close_admin()
        await self._admin.stop()

    async def stop(self) -> None:
        """Stops everything. The connections of the data port must have been closed."""
        self.close_data()
        servers, self._data = self._data, []
        for server in servers:
            await server.wait_closed()
        await self.stop_admin()
        self.listeners.close_all()
