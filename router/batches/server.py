"""The lifecycle of the batch server: open the folder, serve requests, send batches, drain, stop.

The batch server does not listen on a port. The data plane calls `connect` for a connection to it,
which is a socket pair. So every request to the batch server has passed the data port.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final

from router.batches.run.runner import Runner
from router.batches.run.sender import Accept, Sender
from router.batches.run.sending import Waiting
from router.batches.store.blob_store import BlobStore
from router.batches.store.store import Store
from router.batches.store.worker import Worker
from router.config.model import Batches
from router.core.errors import ConfigError
from router.observe.events import log_event

if TYPE_CHECKING:
    from aiohttp import web

    from router.batches.api.batch_api import BatchApi

HOUSE_S: Final = 600.0  # seconds between two searches for expired files and batches
CLOSE_TIMEOUT_S: Final = 1.0  # seconds that requests in progress may take when the server stops


class BatchServer:
    """The batch server.

    Call `open`, then `run` when the data port listens, `rest` to drain, and `stop` at the end.
    """

    def __init__(self, rules: Batches, token: str, waiting: Waiting | None) -> None:
        """`token`: the secret that proves to the data port that a request is from this server.

        `waiting`: see `sending.py`.
        """
        self._rules = rules
        self._token = token
        self._waiting = waiting
        self._worker = Worker("batches")
        self._blobs: BlobStore | None = None
        self._store: Store | None = None
        self._sender: Sender | None = None
        self._web: web.AppRunner | None = None
        self._house: asyncio.Task[None] | None = None
        self.runner: Runner | None = None
        self._batches: BatchApi | None = None
        self._is_closed = False

    @property
    def lines(self) -> int:
        """The number of batch lines whose requests are in progress."""
        return 0 if self.runner is None else self.runner.lines.under_way

    async def open(self) -> None:
        """Opens the folder, and gets ready to serve requests.

        Raises ConfigError if the folder cannot be used.
        """
        from aiohttp import web

        from router.batches.api.application import build
        from router.batches.api.batch_api import BatchApi
        from router.batches.api.file_api import FileApi

        rules, worker = self._rules, self._worker
        try:
            blobs, store = await self._worker(self._take_folder)
        except (OSError, sqlite3.Error) as err:
            raise ConfigError([f"batches.folder: cannot be used: {err}"]) from None
        self._sender = Sender(self._token, rules.result)
        self.runner = runner = Runner(store, blobs, worker, rules, self._sender, self._waiting)
        files = FileApi(store, blobs, worker, rules)
        self._batches = batches = BatchApi(store, worker, runner, rules)
        self._web = web.AppRunner(
            build(files, batches, runner),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,  # a handler is cancelled if its client disconnects
            auto_decompress=False,  # a small compressed upload could be very large in memory
            shutdown_timeout=CLOSE_TIMEOUT_S,
        )
        await self._web.setup()

    def _take_folder(self) -> tuple[BlobStore, Store]:
        folder = Path(self._rules.folder)
        self._blobs = blobs = BlobStore(folder, self._rules.disk_free)
        self._store = store = Store(folder / "batches.sqlite")
        blobs.sweep(store.names())
        return blobs, store

    async def run(self, accept: Accept) -> None:
        """Starts the unfinished batches.

        `accept` creates the data plane's protocol for a connection on which lines are sent.
        """
        assert self._sender is not None
        assert self.runner is not None
        self._sender.open(accept)
        await self.runner.start()
        self._house = asyncio.create_task(self._keep_house())

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseTransport:
        """Opens a connection to this server, with a protocol from `factory`. Raises OSError."""
        assert self._web is not None
        server = self._web.server
        assert server is not None
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            theirs.setblocking(False)
            await loop.connect_accepted_socket(server, theirs)
            transport, _ = await loop.create_connection(factory, sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return transport

    def rest(self) -> None:
        """Begins no more lines. Lines in progress may end."""
        if self.runner is not None:
            self.runner.rest()

    async def stop(self) -> None:
        """Stops everything and closes the folder.

        A second call does nothing, and neither does a call without `open`.
        """
        if self._is_closed:
            return
        self._is_closed = True
        house, self._house = self._house, None
        if house is not None:
            house.cancel()
            await asyncio.gather(house, return_exceptions=True)
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
        self._worker.close()

    def _let_go(self) -> None:
        if self._store is not None:
            self._store.close()
        if self._blobs is not None:
            self._blobs.close()

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
