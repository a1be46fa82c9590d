"""The datagrams to systemd: sd_notify(3)."""

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from router.app.process import _Process
from router.app.restart.notify import Notifier
from router.config.model import Config


@pytest.mark.parametrize("is_abstract", [False, True])
def test_each_state_is_one_datagram(tmp_path: Path, is_abstract: bool) -> None:
    path = f"@{uuid4()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path.replace("@", "\0"))
        sock.setblocking(False)
        notifier = Notifier({"NOTIFY_SOCKET": path})
        notifier.ready()
        notifier.reloading()
        notifier.ready("first\nsecond")
        notifier.replaced(12)
        notifier.stopping()
        found = [sock.recv(4096).decode().split("\n") for _ in range(5)]
    assert found[0] == ["READY=1", "STATUS="]
    reloading, usec, status = found[1]
    assert (reloading, status) == ("RELOADING=1", "STATUS=")
    assert int(usec.removeprefix("MONOTONIC_USEC=")) > 0
    assert found[2] == ["READY=1", "STATUS=first second"]
    assert found[3:] == [["MAINPID=12", "READY=1", "STATUS="], ["STOPPING=1"]]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
def test_no_systemd_is_no_error(environ: dict[str, str]) -> None:
    Notifier(environ).ready()


def test_a_systemd_that_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        for _ in range(10_000):
            Notifier({"NOTIFY_SOCKET": path}).stopping()


def test_a_reload_that_fails_is_over_for_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> Config:
        raise RuntimeError("a defect")

    async def reload() -> None:
        process = _Process(Config(), read, None, None)
        process._is_serving = True
        log = SimpleNamespace(reopen=lambda: None)
        process._app.parts = SimpleNamespace(log=log, keys=())  # type: ignore[assignment]
        await process._reload()

    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.setblocking(False)
        asyncio.run(reload())
        assert sock.recv(4096).startswith(b"RELOADING=1\n")
        assert sock.recv(4096) == b"READY=1\nSTATUS=reload refused: a defect"
