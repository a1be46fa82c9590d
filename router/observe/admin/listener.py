"""Starts and stops the admin listener.

aiohttp is imported only when the listener starts, because the import costs 12 MB of memory and 150
ms. The command `hedgerow check` does not need it. The routes are in `routes.py`. Clients of the
data port cannot reach the admin listener, and the data plane does not depend on it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from router.observe.admin.actions import AdminActions

if TYPE_CHECKING:
    from aiohttp import web

    from router.observe.families.collector import Collector

CLOSE_TIMEOUT_S = 1.0  # how many seconds requests in progress may take when the listener stops


class Admin:
    """The admin listener. Call `start`, then `stop` once."""

    def __init__(self, actions: AdminActions, collector: Collector) -> None:
        self._actions = actions
        self._collector = collector
        self._runner: web.AppRunner | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Returns the host and the port of every listening socket."""
        if self._runner is None:
            return []
        return [(address[0], address[1]) for address in self._runner.addresses]

    async def start(self, host: str, port: int) -> None:
        """Begins to listen. Port 0 selects a free port.

        Raises OSError if the address is not available.
        """
        from aiohttp import web

        from router.observe.admin.routes import KEEP_ALIVE_S, LINGER_S, build

        runner = web.AppRunner(
            build(self._actions, self._collector),
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
            shutdown_timeout=CLOSE_TIMEOUT_S,
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Stops listening and ends open requests. It takes at most about three CLOSE_TIMEOUT_S."""
        runner, self._runner = self._runner, None
        if runner is not None:
            try:
                await asyncio.wait_for(runner.cleanup(), 3 * CLOSE_TIMEOUT_S)
            except TimeoutError:
                pass
