"""The parent of several workers: owns the sockets, and starts a worker again that has ended.

The workers are started with the messages of `app/restart`, as if each replaced a process, and a
restart (SIGUSR2) replaces the parent itself by a new one with new workers. Workers ignore the usual
signals, because a terminal or systemd sends them to all processes of a service: the parent gets the
signal and orders its workers what to do.

Must never: accept a connection, or wait for one worker where another one needs it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Collection, Coroutine
from secrets import token_hex
from typing import Any, Final

from msgspec.structs import replace

from router.app.emulated_fleet import EmulatedFleet, FleetError, replicas_at
from router.app.listeners import ADMIN, DATA, Listeners
from router.app.restart import activation
from router.app.restart.handover import SERVE_S, START_S, Handover
from router.app.restart.messages import Begin, FleetState, Worker, read, sockets_of
from router.app.restart.notify import Notifier
from router.app.restart.predecessor import Abandoned, Predecessor
from router.app.restart.successor import RestartFailed, Successor
from router.app.signals import handle
from router.app.workers import frames
from router.app.workers.balance import AWAY, make_shared, shared_in
from router.app.workers.frames import (
    PARENT,
    RELOAD,
    Answer,
    Ask,
    Frame,
    Order,
    Present,
    Told,
    encoded,
)
from router.app.workers.link import Link
from router.app.workers.siblings import ANSWER_S
from router.config.model import Config, Replica
from router.core.clock import monotonic
from router.observe.events import log_event

_OK, _CANNOT_RUN = 0, 1
# A worker that ends soon after its start is started again after a pause, which doubles each time.
_CALM_S: Final = 60.0
_PAUSE_S: Final = 0.5
_MOST_PAUSE_S: Final = 30.0


class _Slot:
    """One of the workers, or the place of one that has ended."""

    def __init__(self, number: int) -> None:
        self.number = number
        # The worker's end of `ours` gets connections from all workers. It outlives each of them, so
        # a connection that is passed to a worker that dies is taken by the next one.
        self.theirs, self.ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.worker: Successor | None = None
        self.link: Link | None = None
        self.is_serving = False
        self.began_at = 0.0
        self.pause_s = 0.0


class Parent:
    """The parent of `config.workers` workers. `old`: the process that it is to replace."""

    def __init__(self, config: Config, old: Predecessor | None) -> None:
        inherited = activation.take(os.environ, os.getpid())
        if old is not None:
            inherited += old.listeners()
        self.config = config
        self.listeners = Listeners(inherited)
        self.is_draining = False
        self._old = old
        self._notifier = Notifier(os.environ)
        self._handover = Handover(self, self._notifier)
        self._slots = [_Slot(number) for number in range(config.workers)]
        self._shared = make_shared(config.workers)
        self._counts, _ = shared_in(self._shared, config.workers)
        self._salt = token_hex(16)
        self._fleet: EmulatedFleet | None = None
        self._emulated: tuple[Replica, ...] = ()
        self._last = Begin((), FleetState(), ())  # the last known state of the fleet
        self._has_served = old is not None
        self._holders: set[object] = set()  # for whom changes of the members are refused
        self._stops = 0
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Runs the workers until they are stopped. Returns the exit status."""
        old = self._old
        if old is not None:
            await old.connect()
            self._last = Begin((), old.fleet, old.ready)
        try:
            await self._open()
            # The first one alone, so that an error is said once.
            first, *rest = self._slots
            await self._prepare(first)
            await asyncio.gather(*(self._prepare(slot) for slot in rest))
            self._handle_signals()
            if old is not None:
                self._last = Begin((), await old.leave(), ())
            await asyncio.gather(*(self._serve(slot) for slot in self._slots))
        except (RestartFailed, TimeoutError, Abandoned, FleetError) as err:
            why = str(err) or "it did not answer in time"
            log_event(logging.ERROR, "the workers have not started", key=None, why=why)
            if old is not None:
                old.failed(why)
            await self._close()
            return _CANNOT_RUN
        except BaseException:
            await self._close()
            raise
        keepers = [asyncio.ensure_future(self._keep(slot)) for slot in self._slots]
        if old is None:
            self._notifier.ready()
        else:
            old.serve(self.listeners.open_ones)
        self.listeners.drop_unused()
        log_event(
            logging.INFO,
            "workers serve",
            pid=os.getpid(),
            workers=len(keepers),
            pids=[slot.worker.pid for slot in self._slots if slot.worker is not None],
            listen=self.listeners.address(DATA),
            admin=self.listeners.address(ADMIN),
        )
        await asyncio.gather(*keepers)
        await self._close()
        if old is not None:  # It may still have streams; see `_Process`.
            if self._stops < 2:
                await old.end()
            old.close()
        return _OK

    async def _open(self) -> None:
        config = self.config
        self.listeners.open_all(config)
        if self._old is None:
            self.listeners.check_used()
        if config.emulate.count:
            self._fleet = EmulatedFleet(config.emulate.count, config.emulate.model)
            self._emulated = replicas_at(await self._fleet.start(), config.region)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for slot in self._slots:
            if slot.worker is not None:
                await slot.worker.abandon()
        if self._fleet is not None:
            await self._fleet.stop()
        self.listeners.close_all()

    # -- workers ------------------------------------------------------------------------------

    async def _prepare(self, slot: _Slot) -> None:
        """Starts a worker, and waits until it can serve.

        Raises RestartFailed, TimeoutError, OSError.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            worker = Worker(
                slot.number,
                theirs.fileno(),
                slot.theirs.fileno(),
                tuple(each.ours.fileno() for each in self._slots),
                self._shared,
                self._salt,
                not self._has_served,
                self._emulated,
            )
            link = Link(lambda frame: self._hear(slot, frame), lambda: self._silent(slot, link))
            await link.open(ours)
            if self.is_draining:  # It would get no sockets and no order, and open new sockets.
                link.close()
                raise RestartFailed("the router drains")
            slot.link, slot.began_at = link, monotonic()
            self._counts[slot.number] = AWAY
            # Without addresses, because the file may have other ones by now: a worker uses the
            # sockets of its parent in any case.
            sockets = tuple(
                replace(one, address="") for one in sockets_of(self.listeners.open_ones)
            )
            begin = Begin(sockets, self._last.fleet, self._last.ready, worker)
            slot.worker = await Successor.start(begin)
        async with asyncio.timeout(START_S):
            await slot.worker.prepared()

    async def _serve(self, slot: _Slot) -> None:
        """Lets a worker accept connections. It gets the changes that the others made meanwhile.

        Until it serves, the others refuse changes, because it would not hear of them.
        """
        assert slot.worker is not None
        self._hold(slot, True)
        try:
            await self.state()
            async with asyncio.timeout(SERVE_S):
                await slot.worker.go(self._last.fleet)
            slot.is_serving = self._has_served = True
            self._say_who_serves()
        finally:
            self._hold(slot, False)

    async def _keep(self, slot: _Slot) -> None:
        """Starts the worker again whenever it has ended, until the parent ends."""
        while True:
            worker = slot.worker
            if worker is not None:
                status = await worker.ended()
                worker.close()
                slot.worker, slot.is_serving = None, False
                self._counts[slot.number] = AWAY
                self._pass_on(slot)
                self._say_who_serves()
                if self.is_draining:
                    return
                log_event(
                    logging.ERROR,
                    "a worker has ended, and is started again",
                    key=None,
                    worker=slot.number,
                    pid=worker.pid,
                    status=status,
                )
            is_calm = monotonic() - slot.began_at > _CALM_S
            slot.pause_s = 0.0 if is_calm else min(_MOST_PAUSE_S, 2 * slot.pause_s or _PAUSE_S)
            if not is_calm:
                await asyncio.sleep(slot.pause_s)
            await self.state()
            if self.is_draining:
                return
            try:
                await self._prepare(slot)
                await self._serve(slot)
            except (RestartFailed, TimeoutError, OSError) as err:
                why = str(err) or "it did not answer in time"
                log_event(logging.ERROR, "a worker has not started", worker=slot.number, why=why)
                if slot.worker is not None:
                    await slot.worker.abandon()
                    slot.worker = None

    def _pass_on(self, slot: _Slot) -> None:
        """Gives connections that wait for a worker that has ended to one that serves."""
        serving = [each for each in self._slots if each.is_serving]
        while serving:
            try:
                _, found, _, _ = socket.recv_fds(slot.theirs, 1, 1, socket.MSG_DONTWAIT)
            except OSError:  # There are no more.
                return
            to = min(serving, key=lambda each: self._counts[each.number])
            try:
                socket.send_fds(to.ours, [b"c"], found, socket.MSG_DONTWAIT)
            except OSError as err:
                log_event(logging.ERROR, "a connection is lost with its worker", why=str(err))
            for descriptor in found:
                os.close(descriptor)

    def _say_who_serves(self) -> None:
        serving = [slot for slot in self._slots if slot.is_serving]
        for slot in serving:
            self._send(slot, Present(len(serving) - 1))

    def _silent(self, slot: _Slot, link: Link) -> None:
        """Called when the connection to a worker is lost, usually because it has ended."""
        if slot.link is link:  # The next worker may have been started already.
            slot.link = None

    # -- frames -------------------------------------------------------------------------------

    def _send(self, slot: _Slot, frame: Frame) -> bool:
        return slot.link is not None and slot.link.send(frame)

    def _hear(self, sender: _Slot, frame: Frame) -> None:
        if isinstance(frame, Told):
            data = encoded(frame)
            for slot in self._slots:
                if slot.link is not None:  # Also to one that starts.
                    slot.link.send_encoded(data)
        elif isinstance(frame, Ask):
            for slot in self._slots:
                if slot is not sender and slot.is_serving:
                    self._send(slot, frame)
                elif frame.what == RELOAD and not slot.is_serving:
                    self._send(slot, Order(RELOAD))  # It may have read the file already.
        elif isinstance(frame, Answer):
            if frame.asker != PARENT:
                self._send(self._slots[frame.asker], frame)
            elif (answer := self._answers.get(frame.number)) is not None and not answer.done():
                answer.set_result(None if frame.problem else frame.value)
        elif isinstance(frame, Order) and frame.what == frames.STOP and not self.is_draining:
            self._terminate(signal.SIGTERM)

    async def _ask(self, slot: _Slot, what: str) -> Any:
        """Return a worker's answer; None: it has not answered."""
        self._number += 1
        number = self._number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            if not self._send(slot, Ask(PARENT, number, what, ())):
                return None
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._answers[number]

    def _order(self, what: str, *names: str) -> None:
        for slot in self._slots:
            self._send(slot, Order(what, names))

    # -- Replaceable --------------------------------------------------------------------------

    async def state(self) -> tuple[FleetState, tuple[str, ...]]:
        """Return the state of the fleet and its ready replicas, as a worker knows them."""
        for slot in self._slots:
            if slot.is_serving and (found := await self._ask(slot, "state")) is not None:
                try:
                    self._last = read(found, Begin)
                    break
                except ValueError as err:
                    log_event(logging.ERROR, "the state of a worker is unreadable", why=str(err))
        return self._last.fleet, self._last.ready

    def freeze(self, is_frozen: bool) -> None:
        self._hold(self, is_frozen)

    def _hold(self, holder: object, is_frozen: bool) -> None:
        """Refuses changes of the fleet's members while there is a holder."""
        if is_frozen:
            self._holders.add(holder)
        else:
            self._holders.discard(holder)
        self._order(frames.FROZEN if self._holders else frames.THAWED)

    def hand_over(self, left: Collection[str]) -> None:
        if not self.is_draining:
            self._end(frames.REPLACED, *left)

    # -- signals ------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        handle(
            self._terminate,
            {
                signal.SIGHUP: lambda: self._begin(self._reload()),
                signal.SIGUSR1: lambda: self._order(frames.REOPEN),
                signal.SIGUSR2: self._restart,
            },
        )

    def _restart(self) -> None:
        if all(slot.is_serving for slot in self._slots):
            self._handover.begin()
        else:
            log_event(logging.WARNING, "restart refused", key=None, why="not all workers serve")

    def _terminate(self, number: int) -> None:
        self._stops += 1
        if self._stops > 2:
            for slot in self._slots:
                if slot.worker is not None:
                    slot.worker.signal(signal.SIGKILL)
            return
        if not self._handover.successor_pid:
            self._notifier.stopping()
        self._end(frames.STOP_BY_HAND if number == signal.SIGINT else frames.STOP)
        self._begin(self._handover.stop())

    def _end(self, order: str, *names: str) -> None:
        self.is_draining = True
        self._order(order, *names)
        self.listeners.close_all()  # The workers have copies of the sockets.

    async def _reload(self) -> None:
        self._notifier.reloading()
        self._order(RELOAD)
        self.config = replace(self.config)  # So that a new process reads the file again.
        self._notifier.ready()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
