"""Runs a router as a process: signals, the event loop, the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from router.app.lifecycle import App
from router.app.restart import activation
from router.app.restart.handover import Handover
from router.app.restart.messages import FleetState, Worker, encoded_state
from router.app.restart.notify import Notifier
from router.app.restart.predecessor import Abandoned, Predecessor
from router.app.signals import handle
from router.app.workers import frames
from router.app.workers.own_config import own_config
from router.app.workers.siblings import Siblings
from router.config.model import Config
from router.core import held_signals
from router.core.memory import keep_large_blocks
from router.observe import events
from router.observe.events import log_event

_ORDERS: Final = (*(signal.SIGTERM, signal.SIGINT), *held_signals.ORDERS)
# The exit statuses. A new process is abandoned if the old one goes on instead.
_OK, _ABANDONED = 0, 1


def serve(read: Callable[[], Config], path: str | None = None) -> int:
    """Runs a router until it is stopped. Returns the exit status.

    `read` reads the configuration, now and at each reload. SIGTERM and SIGINT start a drain, and a
    second signal stops the router at once. If no client is connected, the first SIGINT stops the
    router at once. SIGHUP reloads the configuration, SIGUSR1 opens the access log again, and
    SIGUSR2 replaces this process by a new one. Other signals are ignored (`held_signals`).

    `path`: the file of the configuration, if it has one.

    Raises ConfigError, or OSError if an address is not available.
    """
    import uvloop

    held_signals.hold()
    old = Predecessor.find(os.environ)
    worker = None if old is None else old.worker
    if worker is not None:
        read = partial(_own, read, worker)
    try:
        config = read()
        keep_large_blocks()
        handler = events.install(level=config.log_level)
        try:
            if config.workers > 1 and worker is None:
                from router.app.workers.parent import Parent

                return uvloop.run(Parent(config, old).run())
            return uvloop.run(_Process(config, read, old, path).run())
        finally:
            events.uninstall(handler)
    except Exception as err:
        if old is not None:
            old.failed(str(err) or repr(err))
        raise


def _own(read: Callable[[], Config], worker: Worker) -> Config:
    return own_config(read(), worker)


class _Process:
    """One process. `old`: the process that it is to replace; `None`: there is none."""

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        old: Predecessor | None,
        path: str | None,
    ) -> None:
        inherited = activation.take(os.environ, os.getpid())
        if old is not None:
            inherited += old.listeners()
        self._old = old
        worker = None if old is None else old.worker
        # The parent of workers speaks with systemd.
        self._notifier = Notifier({} if worker else os.environ)
        self._siblings: Siblings | None = None
        if worker is not None:
            self._siblings = Siblings(worker, self._answer, self._obey, self._orphaned)
        self._app = App(config, read, path=path, inherited=inherited, siblings=self._siblings)
        self._handover = Handover(self._app, self._notifier)
        self._tasks: set[asyncio.Task[None]] = set()
        # Waits for the permission to accept connections.
        self._leave: asyncio.Task[FleetState] | None = None
        # Orders of the parent that arrive before this worker can obey them. None: it can.
        self._orders: list[frames.Order] | None = []
        self._is_serving = False
        self._stops = 0  # The number of signals to stop.
        self._now = asyncio.Event()  # A second signal: nothing more is awaited.

    async def run(self) -> int:
        app, old = self._app, self._old
        if old is None:
            await app.prepare()
        else:
            await old.connect()
            if self._siblings is not None:
                await self._siblings.open()
            await app.prepare(old.fleet)
        try:
            if old is None:
                app.listeners.check_used()
                self._handle_signals()
            else:
                await old.await_fleet(app.parts.fleet, app.parts.origins.roster)
                self._handle_signals()
                self._leave = asyncio.ensure_future(old.leave())
                app.adopt_fleet(await self._leave)
            await app.listen()
        except (Abandoned, asyncio.CancelledError):
            await app.stop()
            if self._leave is None:
                raise
            log_event(logging.WARNING, "restart abandoned", key=None)
            return _ABANDONED
        except BaseException:
            await app.stop()
            raise
        self._is_serving = True
        if old is None:
            self._notifier.ready()
        else:
            old.serve(app.listeners.open_ones)
        app.listeners.drop_unused()
        if self._stops:
            app.drain()
        # `gc.freeze` excludes existing objects from garbage collection. The data plane creates few
        # reference cycles, so collections are rarely useful.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        await app.draining.done.wait()
        await app.stop()
        await self._await_old()
        return _OK

    async def _await_old(self) -> None:
        """Waits for the end of the process that this process has replaced.

        It may still have streams. If this process ended first, a supervisor would kill it.
        """
        if self._old is None or self._siblings is not None:
            return
        waiting = [asyncio.ensure_future(self._old.end()), asyncio.ensure_future(self._now.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        self._old.close()

    # -- signals ------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        if self._siblings is not None:  # The parent gets the signals.
            loop = asyncio.get_running_loop()
            for number in (*_ORDERS, *held_signals.IGNORED):
                loop.add_signal_handler(number, lambda: None)
            held, self._orders = self._orders or [], None
            for held_order in held:
                self._obey(held_order)
            return
        handle(
            self._terminate,
            {
                signal.SIGHUP: lambda: self._begin(self._reload()),
                signal.SIGUSR1: self._app.reopen_log,
                signal.SIGUSR2: self._restart,
            },
        )

    def _terminate(self, number: signal.Signals) -> None:
        app = self._app
        self._stops += 1
        if not self._is_serving:
            if self._leave is not None:
                self._leave.cancel()
        elif self._stops > 1 or (app.draining.has_begun and not app.draining.is_replaced):
            self._now.set()
            app.draining.done.set()
        else:
            if not app.draining.is_replaced:
                self._notifier.stopping()
            app.drain(by_hand=number == signal.SIGINT)
            self._begin(self._handover.stop())

    # -- orders of the parent -----------------------------------------------------------------

    async def _answer(self, what: str, args: Sequence[Any]) -> Any:
        if what == "state":
            return encoded_state(*await self._app.state())
        return await self._app.answers.own(what, args)

    def _obey(self, order: frames.Order) -> None:
        app = self._app
        if self._orders is not None:
            self._orders.append(order)
        elif order.what in (frames.STOP, frames.STOP_BY_HAND):
            by_hand = order.what == frames.STOP_BY_HAND
            self._terminate(signal.SIGINT if by_hand else signal.SIGTERM)
        elif order.what == frames.RELOAD:
            self._begin(self._reload())
        elif order.what == frames.REOPEN:
            app.reopen_log()
        elif order.what == frames.REPLACED:
            if self._is_serving:
                app.hand_over(order.names)
            else:
                self._terminate(signal.SIGTERM)
        else:
            app.freeze(order.what == frames.FROZEN)

    def _orphaned(self) -> None:
        """Drains, because the parent has ended: nobody would start this worker again."""
        if not self._app.draining.done.is_set():
            log_event(logging.ERROR, "the parent of this worker has ended")
            self._terminate(signal.SIGTERM)

    def _restart(self) -> None:
        if self._is_serving:
            self._handover.begin()

    async def _reload(self) -> None:
        is_announced = self._is_serving and not self._app.draining.has_begun
        if is_announced:
            self._notifier.reloading()
        status = ""
        try:
            await self._app.reload()
        except Exception as err:  # systemd must be told that the reload is over.
            # The method `reload` has logged the error.
            status = f"reload refused: {err}"
        if is_announced:
            self._notifier.ready(status)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
