"""The drain of one router: the requests in progress finish, and then the process may end.

A load balancer first gets time to see that the router is not ready. A router that another process
replaces needs no such time, because the other process accepts connections at the same addresses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from router.app.listeners import DATA
from router.app.parts import Parts
from router.app.servers import Servers
from router.core.clock import monotonic
from router.observe.events import log_event
from router.wire.client import QUIET_S
from router.wire.sweep import NEVER

# Seconds in which a replaced process still answers requests on connections to its admin port.
_ADMIN_S = 1.0
_LOOK_S = 0.05  # Seconds between two checks whether a drain is over.


class Drain:
    """Whether and how one router drains."""

    def __init__(self) -> None:
        self.has_begun = False
        self.done = asyncio.Event()  # Set when the drain, or a stop, has finished.
        self.is_replaced = False  # Another process serves instead of this one.
        self._task: asyncio.Task[None] | None = None

    def begin(self, parts: Parts, servers: Servers, *, by_hand: bool = False) -> None:
        """Lets the requests in progress finish, then sets `done`. A second call does nothing.

        `by_hand`: see `App.drain`.
        """
        if not self.has_begun:
            counts = _under_way(parts)
            # No client is connected, so there is no load balancer to wait for.
            is_alone = by_hand and not any(counts.values())
            wait_s = 0.0 if is_alone else parts.config.drain.lame_duck_s
            log_event(logging.INFO, "draining", **counts, lame_duck_s=wait_s)
            self._start(parts, partial(self._drain, parts, servers, is_alone))

    def hand_over(self, parts: Parts, servers: Servers, left: Collection[str]) -> None:
        """Lets the requests in progress finish, because another process serves now.

        `left`: the names of the listeners with addresses that the other process does not use. Does
        nothing if the router drains already.
        """
        if not self.has_begun:
            self.is_replaced = True
            log_event(logging.INFO, "draining", **_under_way(parts))
            self._start(parts, partial(self._leave, parts, servers, left))

    async def cancel(self) -> None:
        """Ends the drain, because the router stops now."""
        self.has_begun = True
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _start(self, parts: Parts, work: Callable[[], Awaitable[None]]) -> None:
        self.has_begun = True
        self._task = asyncio.ensure_future(self._done_after(parts, work))

    async def _done_after(self, parts: Parts, work: Callable[[], Awaitable[None]]) -> None:
        """Sets `done` after the work, even if it fails: the process must end."""
        try:
            await work()
        except Exception as err:
            log_event(logging.ERROR, "drain failed", key=None, error=repr(err))
        log_event(logging.INFO, "drained", **_under_way(parts))
        self.done.set()

    async def _leave(self, parts: Parts, servers: Servers, left: Collection[str]) -> None:
        servers.close_admin()
        if DATA in left:
            await _lame_duck(parts)
        else:
            servers.close_data()
        both = self._finish(parts, servers, NEVER), _end_admin(servers)
        for error in await asyncio.gather(*both, return_exceptions=True):
            if error is not None:
                raise error

    async def _drain(self, parts: Parts, servers: Servers, is_alone: bool) -> None:
        if not is_alone:
            await _lame_duck(parts)
        await self._finish(parts, servers, QUIET_S)

    async def _finish(self, parts: Parts, servers: Servers, quiet_s: float) -> None:
        """Accepts no more connections, and waits for the requests in progress.

        A connection that waits for a request is closed after `quiet_s` seconds without one, or
        after the usual time limits. So a request that is just arriving is still answered.
        """
        front, unreleased = parts.front, [*parts.addons.values()]
        for addon in unreleased:
            addon.rest()
        servers.close_data()
        front.draining = front.last_answers = True
        deadline = monotonic() + parts.config.drain.grace_s
        is_over = False
        while not is_over:
            await asyncio.sleep(_LOOK_S)  # Connections that were just accepted are counted then.
            now = monotonic()
            for client in list(front.clients):
                client.shut(now - quiet_s)
            if self.is_replaced:
                unreleased = [addon for addon in unreleased if not await addon.release()]
            is_over = now >= deadline or not (front.clients or parts.dispatcher.exchanges)


def _under_way(parts: Parts) -> dict[str, Any]:
    return {"requests": len(parts.dispatcher.exchanges), "clients": len(parts.front.clients)}


async def _lame_duck(parts: Parts) -> None:
    """Accepts connections for a time, so that a load balancer can read /readyz."""
    parts.front.last_answers = True
    await asyncio.sleep(parts.config.drain.lame_duck_s)


async def _end_admin(servers: Servers) -> None:
    """Closes the connections to the admin port, so that probes reach the other process."""
    await asyncio.sleep(_ADMIN_S)
    await servers.stop_admin()
