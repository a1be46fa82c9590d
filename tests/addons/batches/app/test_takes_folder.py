"""A process that waits for the batch folder takes it in spite of errors of the disk."""

import asyncio
import errno
import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from router.addons.batches.server import BatchServer, connected, listening, withdraw
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


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (Store, "unfinished", sqlite3.OperationalError("disk I/O error")),
        (web.AppRunner, "setup", OSError(errno.EMFILE, os.strerror(errno.EMFILE))),
    ],
    ids=["the batches cannot be read", "the server cannot be built"],
)
@scenario
async def test_it_is_tried_again_after_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception
) -> None:
    fails, real = 2, getattr(owner, name)

    def failing(self: object) -> object:
        nonlocal fails
        if fails:
            fails -= 1
            raise error
        return real(self)

    async with two_servers(tmp_path) as (old, new):
        monkeypatch.setattr(owner, name, failing)
        await changes_hands(old, new)
        assert fails == 0


def test_a_connection_to_the_owner_even_under_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 150)
    folder.mkdir(mode=0o700)
    with listening(folder) as owner, connected(folder) as other:
        assert stat.filemode((folder / "socket").stat().st_mode) == "srw-------"
        accepted, _ = owner.accept()
        accepted.sendall(b"hello")
        assert other.recv(5) == b"hello"
        accepted.close()


def test_without_an_owner_there_is_no_connection(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        connected(tmp_path)
    listening(tmp_path).close()  # as a crash leaves it
    with pytest.raises(OSError):
        connected(tmp_path)
    with listening(tmp_path), connected(tmp_path):
        pass


def test_a_connection_that_has_begun_is_accepted_after_the_withdrawal(tmp_path: Path) -> None:
    with listening(tmp_path) as owner, connected(tmp_path):
        withdraw(tmp_path)
        with pytest.raises(FileNotFoundError):
            connected(tmp_path)
        owner.accept()[0].close()
