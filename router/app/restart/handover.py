"""Replaces this process by a new process that has the same listening sockets, after SIGUSR2.

The new process prepares everything that can fail while this process serves as usual. If the new
process fails, this process goes on. Otherwise the new process begins to accept connections, and
only then does this process stop accepting. Both share the queues of the listening sockets, so no
connection is refused in between.

From the moment at which the new process gets the state of the fleet, this process refuses changes
of the fleet's members, because they would be lost.

Must never: end a request, or stop accepting before the new process accepts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Collection
from typing import Final, Protocol

from router.app.listeners import Listeners
from router.app.restart.messages import Begin, FleetState, sockets_of
from router.app.restart.notify import Notifier
from router.app.restart.successor import RestartFailed, Successor
from router.config.model import Config
from router.observe.events import log_event

# Seconds in which the new process must be prepared: its start, its first probes, READY_WAIT_S.
START_S: Final = 120.0
SERVE_S: Final = 10.0  # seconds in which a prepared process must begin to accept


class Replaceable(Protocol):
    """A router, or the parent of workers, that a new process may replace."""

    listeners: Listeners

    @property
    def config(self) -> Config: ...

    @property
    def is_draining(self) -> bool: ...

    async def state(self) -> tuple[FleetState, tuple[str, ...]]:
        """Return the state of the fleet, and the IDs of the replicas that get requests."""

    def freeze(self, is_frozen: bool) -> None:
        """Refuses changes of the fleet's members from now on, or no longer."""

    def hand_over(self, left: Collection[str]) -> None:
        """Drains, because another process serves. `left`: see `Drain.hand_over`."""


class Handover:
    """The restarts of one process. `begin` starts one; `stop` ends one that has not succeeded."""

    def __init__(self, app: Replaceable, notifier: Notifier) -> None:
        self._app = app
        self._notifier = notifier
        self._task: asyncio.Task[None] | None = None
        self._successor: Successor | None = None
        self._may_serve = False  # The new process may have accepted connections.
        self.successor_pid = 0  # The process that has replaced this process; 0: none has.

    def begin(self) -> None:
        """Begins a restart, or logs why it may not begin."""
        why = refusal(
            os.getpid(),
            self.successor_pid,
            is_starting=self._task is not None,
            is_draining=self._app.is_draining,
        )
        if why:
            log_event(logging.WARNING, "restart refused", key=None, why=why)
            return
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Ends a new process that does not serve yet, because this process is to stop.

        A new process that may serve already gets SIGTERM, and drains.
        """
        task = self._task
        if task is None:
            return
        if self._may_serve and self._successor is not None:
            self._successor.signal(signal.SIGTERM)
        else:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        self._notifier.reloading()
        try:
            await self._replace()
        except (RestartFailed, TimeoutError, OSError) as err:
            why = str(err) or "the new process did not answer in time"
            log_event(logging.ERROR, "restart failed", key=None, why=why)
            self._notifier.ready(f"restart failed: {why}")
        finally:
            self._task = None

    async def _replace(self) -> None:
        app = self._app
        config = app.config
        open_ones = app.listeners.open_ones
        successor = await Successor.start(Begin(sockets_of(open_ones), *await app.state()))
        self._successor = successor
        log_event(logging.INFO, "restarting", key=None, pid=successor.pid)
        try:
            async with asyncio.timeout(START_S):
                await successor.prepared()
            self._may_serve = True
            app.freeze(True)
            async with asyncio.timeout(SERVE_S):
                fds = await successor.go((await app.state())[0])
        except BaseException:
            self._may_serve = False
            self._successor = None
            await successor.abandon()
            app.freeze(False)
            raise
        self.successor_pid = successor.pid
        self._notifier.replaced(successor.pid)
        log_event(logging.INFO, "restarted", key=None, pid=successor.pid)
        if app.config is not config:  # It was reloaded after the new process had read it.
            successor.signal(signal.SIGHUP)
        left = {one.name for one in open_ones if one.fd not in fds}
        app.hand_over(left)


def refusal(pid: int, successor: int, *, is_starting: bool, is_draining: bool) -> str:
    """Return why the process `pid` must not start a new process; "" if it may.

    `successor`: the process that has replaced this process; 0: none has.
    """
    if successor:
        return f"process {successor} has replaced this process; send the signal to it"
    if is_starting:
        return "a restart is in progress"
    if is_draining:
        return "the router drains"
    if pid == 1:
        return "this is process 1 of a container, which ends with this process"
    return ""
