"""The lifecycle of the batch server: open the folder, serve requests, send batches, drain, stop.

The batch server does not listen on a port. The data plane calls `connect` for a connection to it,
which is a socket pair. So every request to the batch server has passed the data port.

`listening`, `withdraw`, `connected`: the socket in the batch folder, over which other processes use
the server of its owner.

Only one process has the folder, but during a restart two processes serve clients. The process that
has the folder listens on this socket, and the other one sends requests for files and batches there.
The socket's mode is 0600, so only processes of this user can connect. The server therefore trusts
the owner ID in a request, as for its own process. Called only in the worker's thread.

Must never: be needed by a process that has the folder. Some file systems have no sockets.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from router.addons.batches.run.runner import Runner
from router.addons.batches.run.sender import Accept, Sender
from router.addons.batches.run.sending import Waiting
from router.addons.batches.store.blob_store import BlobStore
from router.addons.batches.store.database import check_version
from router.addons.batches.store.store import Store
from router.config.model import Batches
from router.core.clock import time
from router.core.disk.worker import Worker
from router.core.errors import ConfigError
from router.dispatch.addon import Addon
from router.observe.events import log_event
from router.observe.families.family import COUNTER, GAUGE, Family, Source, Values

if TYPE_CHECKING:
    from aiohttp import web

    from router.addons.batches.api.batch_api import BatchApi


_NAME: Final = "socket"


def listening(folder: Path) -> socket.socket:
    """Return the listening socket of the folder's owner. Raises OSError."""
    withdraw(folder)

    def listen(sock: socket.socket, address: str) -> None:
        os.fchmod(sock.fileno(), 0o600)  # the mode of the file that `bind` creates
        sock.bind(address)
        sock.listen()

    return _socket(folder, listen)


def withdraw(folder: Path) -> None:
    """Lets no more connections begin. The owner still accepts those that have begun."""
    (folder / _NAME).unlink(missing_ok=True)


def connected(folder: Path) -> socket.socket:
    """Return a connection to the process that has the folder. Raises OSError if there is none."""
    return _socket(folder, socket.socket.connect)


def _socket(folder: Path, act: Callable[[socket.socket, str], None]) -> socket.socket:
    # A socket's path has at most 107 bytes, and the path of the folder may be longer.
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        act(sock, f"/proc/self/fd/{handle}/{_NAME}")
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(handle)
    return sock


HOUSE_S: Final = 600.0  # seconds between two searches for expired files and batches
SOCKET_BYTES: Final = 32 * 1024  # the size of the buffer of a socket pair
DATABASE: Final = "batches.sqlite"  # the file in the folder
FOLDER_S: Final = 0.1  # seconds between two attempts to take a folder that is in use
CLOSE_TIMEOUT_S: Final = 1.0  # seconds that requests in progress may take when the server stops


def _under_way(runner: Runner | None) -> Values:
    if runner is None:
        return None
    return {"batches": float(runner.running), "lines": float(runner.lines.under_way)}


def _attempts(runner: Runner | None) -> Values:
    return None if runner is None else {n: float(v) for n, v in runner.lines.ended.items()}


FAMILIES: Final[tuple[Family[Runner | None], ...]] = (
    Family(
        "batches_under_way",
        GAUGE,
        "Batches in progress, and lines of batches in progress.",
        _under_way,
        ("what",),
    ),
    Family(
        "batch_attempts",
        COUNTER,
        "Attempts to process lines of batches, by verdict on the answer.",
        _attempts,
        ("verdict",),
    ),
)


class BatchServer(Addon):
    """The batch server.

    Only one process at a time has the folder. During a restart the new process waits until the old
    one has no more lines in progress (`release`), so no line is sent twice. Meanwhile the process
    that has the folder serves the requests of both processes.
    """

    def __init__(self, rules: Batches, token: str, waiting: Waiting | None, accept: Accept) -> None:
        """`token`: the secret that proves to the data port that a request is from this server.

        `waiting`: see `sending.py`. `accept` creates the data plane's protocol for a connection on
        which lines are sent.
        """
        self.families = (Source(FAMILIES, lambda: self.runner),)
        self._accept = accept
        self._rules = rules
        self._token = token
        self._waiting = waiting
        self._worker = Worker("batches")
        self._folder = Path(rules.folder)
        self._blobs: BlobStore | None = None
        self._store: Store | None = None
        self._sender: Sender | None = None
        self._web: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None  # on the socket in the folder
        self._house: asyncio.Task[None] | None = None
        self.runner: Runner | None = None
        self._batches: BatchApi | None = None
        self._has_folder = False  # This process has the folder, and its server is ready.
        self._is_withdrawn = False  # Other processes do not use this server any more.
        self._is_resting = False
        self._is_over = False  # This process does not have the folder any more.
        self._is_closed = False

    def held(self) -> dict[str, int]:
        return {"batch_lines": self._lines}

    @property
    def _lines(self) -> int:
        """The number of batch lines whose requests are in progress."""
        return 0 if self.runner is None else self.runner.lines.under_way

    async def start(self, *, waits: bool = False) -> None:
        """Opens the folder, and gets ready to serve requests.

        `waits`: if another process uses the folder, `listening` waits for it. Raises ConfigError if
        the folder cannot be used, also if another process still has it.
        """
        try:
            try:
                await self._open()
            except BlockingIOError:
                if not waits:
                    raise
                await self._worker(check_version, self._folder / DATABASE)
        except (OSError, sqlite3.Error) as err:
            why = err.strerror if isinstance(err, BlockingIOError) else err
            raise ConfigError([f"batches.folder: cannot be used: {why}"]) from None

    async def _open(self) -> None:
        blobs, store = await self._worker(self._take_folder)
        try:
            await self._build(blobs, store)
        except Exception:
            await self._worker(self._let_go)  # The next attempt takes the folder again.
            raise

    async def _build(self, blobs: BlobStore, store: Store) -> None:
        from aiohttp import web

        from router.addons.batches.api.application import build
        from router.addons.batches.api.batch_api import BatchApi
        from router.addons.batches.api.file_api import FileApi

        rules, worker = self._rules, self._worker
        self._sender = Sender(self._token, rules.result)
        self.runner = runner = Runner(store, blobs, worker, rules, self._sender, self._waiting)
        files = FileApi(store, blobs, worker, rules)
        self._batches = batches = BatchApi(store, worker, runner, rules)
        ready = web.AppRunner(
            build(files, batches, runner),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,  # a handler is cancelled if its client disconnects
            auto_decompress=False,  # a small compressed upload could be very large in memory
            shutdown_timeout=CLOSE_TIMEOUT_S,
        )
        await ready.setup()
        self._web = ready

    def _take_folder(self) -> tuple[BlobStore, Store]:
        try:
            self._blobs = blobs = BlobStore(self._folder, self._rules.disk_free)
            self._store = store = Store(self._folder / DATABASE)
            blobs.sweep(store.names())
        except BaseException:
            self._let_go()
            raise
        return blobs, store

    async def listening(self) -> None:
        """Starts the unfinished batches."""
        if self._web is None:
            log_event(logging.INFO, "batches wait for the process that uses their folder")
            self._house = asyncio.create_task(self._wait_for_folder())
        else:
            await self._begin()
            self._house = asyncio.create_task(self._keep_house())

    async def _wait_for_folder(self) -> None:
        while not self._has_folder:
            await asyncio.sleep(FOLDER_S)
            try:
                if self._web is None:
                    await self._open()
                await self._begin()
            except BlockingIOError:
                continue
            except (OSError, sqlite3.Error) as err:
                log_event(logging.ERROR, "the batch folder cannot be used", error=str(err))
        await self._keep_house()

    async def _begin(self) -> None:
        """Starts the unfinished batches. After sqlite3.Error it may be called again."""
        assert self._sender is not None
        assert self.runner is not None
        self._sender.open(self._accept)
        await self.runner.start()
        if self._is_resting:
            self.runner.rest()
        self._has_folder = True
        try:
            sock = await self._worker(listening, self._folder)
        except OSError as err:  # Without the socket, other processes wait for the folder.
            log_event(logging.WARNING, "the batch folder can have no socket", error=str(err))
            return
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._server, sock=sock)

    @property
    def _server(self) -> web.Server:
        assert self._web is not None
        assert self._web.server is not None
        return self._web.server

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseTransport:
        """Opens a connection to this server, with a protocol from `factory`.

        If another process has the folder, the connection leads to its server. Raises OSError;
        ConnectionAbortedError if this server has stopped.
        """
        loop = asyncio.get_running_loop()
        while not self._has_folder or self._is_withdrawn:
            if self._is_closed:
                raise ConnectionAbortedError(errno.ECONNABORTED, "the batch server has stopped")
            try:
                sock = await self._worker(connected, self._folder)
            except OSError:  # The folder changes hands now.
                await asyncio.sleep(FOLDER_S)
                continue
            transport, _ = await loop.create_connection(factory, sock=sock)
            return transport
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            theirs.setblocking(False)
            # The server reads all that has arrived at once, so little may arrive in one turn.
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
            await loop.connect_accepted_socket(self._server, theirs)
            transport, _ = await loop.create_connection(factory, sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return transport

    def rest(self) -> None:
        """Begins no more lines. Lines in progress may end."""
        self._is_resting = True
        if self.runner is not None:
            self.runner.rest()

    async def release(self) -> bool:
        """Gives the folder to another process, unless a line or a request needs it.

        Call again until the result is true. `rest` must have been called. A failure is logged, and
        the folder then counts as released: it is free at the latest when this process ends.
        """
        try:
            return await self._release()
        except Exception as err:
            log_event(logging.ERROR, "the folder of batches is not released", error=repr(err))
            return True

    async def _release(self) -> bool:
        if self._has_folder:
            if self._lines or self._server.connections:
                return False
            if not self._is_withdrawn:
                self._is_withdrawn = True
                await self._worker(withdraw, self._folder)
                await asyncio.sleep(FOLDER_S)  # The connections that have begun are accepted.
                return await self._release()
        await self._close()
        return True

    async def stop(self) -> None:
        """Stops everything and closes the folder.

        A second call does nothing, and neither does a call without `start`.
        """
        if self._is_closed:
            return
        self._is_closed = True
        await self._close()
        self._worker.close()

    async def _close(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        house, self._house = self._house, None
        if house is not None:
            house.cancel()
            await asyncio.gather(house, return_exceptions=True)
        if self._has_folder and not self._is_withdrawn:
            await self._worker(withdraw, self._folder)
        self._has_folder = False
        if self._listener is not None:
            self._listener.close()
        if self._web is not None:
            try:
                await asyncio.wait_for(self._web.cleanup(), 3 * CLOSE_TIMEOUT_S)
            except TimeoutError:
                pass
        if self._batches is not None:
            await self._batches.settled()
        if self.runner is not None:
            await self.runner.stop()
        if self._sender is not None:
            await self._sender.close()
        await self._worker(self._let_go)

    def _let_go(self) -> None:
        store, self._store = self._store, None
        blobs, self._blobs = self._blobs, None
        if store is not None:
            store.close()
        if blobs is not None:
            blobs.close()

    async def _keep_house(self) -> None:
        while True:
            try:
                await self._tidy()
            except (OSError, sqlite3.Error) as err:
                log_event(logging.ERROR, "expired batch files cannot be deleted", error=str(err))
            await asyncio.sleep(HOUSE_S)

    async def _tidy(self) -> None:
        assert self._store is not None
        assert self.runner is not None
        now = int(time())
        for name in await self._worker(self._store.outdated, now):
            await self._worker(self._throw_away, name)
        await self._worker(self._store.forget, now - int(self._rules.retention_s))
        for number in await self._worker(self._store.spent):
            await self.runner.purge(number)

    def _throw_away(self, name: str) -> None:
        assert self._store is not None
        assert self._blobs is not None
        if self._store.user_of(name) is None:
            self._store.remove_file(name)
            self._blobs.remove(name)
