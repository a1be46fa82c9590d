"""A process that waits for the batch folder takes it in spite of errors of the disk."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from router.addons.batches.server import BatchServer
from router.addons.batches.store.rows import Batch
from router.addons.batches.store.store import Store
from router.config.model import Batches
from tests.harness.messages import request
from tests.harness.replica import eventually
from tests.harness.running import scenario


@asynccontextmanager
async def two_servers(folder: Path) -> AsyncIterator[tuple[BatchServer, BatchServer]]:
    """A server that has the folder, and a server that waits for it."""
    rules = Batches(enabled=True, folder=str(folder), disk_free=0)
    old, new = (
        BatchServer(rules, "token", None, asyncio.Protocol),
        BatchServer(rules, "token", None, asyncio.Protocol),
    )
    try:
        await old.start()
        await old.listening()
        await new.start(waits=True)
        await new.listening()
        yield old, new
    finally:
        await old.stop()
        await new.stop()


class Answer(asyncio.Protocol):
    """The client's end of a connection to the batch server."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


async def changes_hands(old: BatchServer, server: BatchServer) -> None:
    """Waits until the server has the folder, and sends a request."""
    old.rest()
    assert await old.release()
    await eventually(lambda: server._has_folder, "the server has the folder")
    assert server.runner is not None
    assert server.runner.lines._task is not None
    answer = Answer()
    transport = await server.connect(lambda: answer)
    transport.write(request("/v1/files"))  # type: ignore[attr-defined]
    await eventually(lambda: b'"list"' in answer.data, "an answer")
    transport.close()


@scenario
async def test_the_unfinished_batches_cannot_be_read_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, unfinished = 2, Store.unfinished

    def failing(self: Store) -> list[Batch]:
        nonlocal fails
        if fails:
            fails -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return unfinished(self)

    async with two_servers(tmp_path) as (old, new):
        monkeypatch.setattr(Store, "unfinished", failing)
        await changes_hands(old, new)
        assert fails == 0


@scenario
async def test_the_server_cannot_be_built_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, setup = 2, web.AppRunner.setup

    async def failing(self: web.AppRunner) -> None:
        nonlocal fails
        if fails:
            fails -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        await setup(self)

    async with two_servers(tmp_path) as (old, new):
        monkeypatch.setattr(web.AppRunner, "setup", failing)
        await changes_hands(old, new)
        assert fails == 0
