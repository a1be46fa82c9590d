"""A new process that cannot take over: the old one goes on, and logs why."""

import asyncio
import os
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.addons.needed import needs
from tests.faults.restart.helpers import IMPATIENT, held, is_alive, restarting
from tests.harness.listeners import dead_url
from tests.harness.messages import chat, request
from tests.harness.process import START_S
from tests.harness.replica import eventually
from tests.harness.running import long_scenario


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ("nonsense: 1\n", "nonsense"),
        ("prefix: {exact: 7}\n", "prefix.exact"),
        ("tls: {cert: /none.pem, key: /none.key}\n", "tls.cert"),
    ],
)
@long_scenario
async def test_an_invalid_configuration(tmp_path: Path, extra: str, why: str) -> None:
    async with restarting(tmp_path) as one:
        one.write(extra)
        event = await one.router.restart()
        assert event["message"] == "restart failed"
        assert why in event["why"]
        assert (await one.ask()).status == 200
        one.write()
        assert (await one.router.restart())["message"] == "restarted"
        assert (await one.ask()).status == 200


@needs("batches", "usage")
@pytest.mark.parametrize("file", ["batches/batches.sqlite", "usage.db"])
@long_scenario
async def test_a_file_of_another_version(tmp_path: Path, file: str) -> None:
    """The new process looks at its files before it takes over, also at those in use."""
    extra = (
        f"batches: {{enabled: true, folder: {tmp_path / 'batches'}, disk_free: 0}}\n"
        f"usage: {{file: {tmp_path / 'usage.db'}}}\n"
    )

    def mark(version: int) -> int:
        """Set the version of the file; return the version before."""
        with closing(sqlite3.connect(tmp_path / file)) as db:
            (before,) = db.execute("PRAGMA user_version").fetchone()
            db.execute(f"PRAGMA user_version = {version}")
            return int(before)

    async with restarting(tmp_path, extra=extra) as one:
        before = mark(9)
        event = await one.router.restart()
        assert event["message"] == "restart failed"
        assert "version 9" in event["why"]
        assert str(tmp_path / file) in event["why"]
        assert (await one.ask()).status == 200
        batches = request("/v1/batches", "Authorization: Bearer key-1", "Connection: close")
        assert (await one.ask(batches)).status == 200
        mark(before)
        assert (await one.router.restart())["message"] == "restarted"
        assert (await one.ask(batches)).status == 200


@long_scenario
async def test_an_address_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with restarting(tmp_path) as one:
            one.config.write_text(
                one.config.read_text().replace(
                    "admin: 127.0.0.1:0", f"admin: 127.0.0.1:{taken.getsockname()[1]}"
                )
            )
            event = await one.router.restart()
            assert event["message"] == "restart failed"
            assert "in use" in event["why"]
            assert await one.status("/readyz") == 200
            assert (await one.ask()).status == 200


@long_scenario
async def test_no_replica_is_up_for_the_new_process(tmp_path: Path) -> None:
    """For example, the new configuration lists other replicas by mistake."""
    async with restarting(tmp_path, program=IMPATIENT) as one:
        one.write(replica=dead_url())
        event = await one.router.restart()
        assert event["message"] == "restart failed"
        assert "no replica is up" in event["why"]
        assert "refused" in event["why"].lower()
        assert (await one.ask()).status == 200


@long_scenario
async def test_the_new_process_is_killed_while_it_prepares(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with restarting(tmp_path, held(go)) as one:
        stream = await one.router.client()
        await stream.send(chat(stream=True))
        await stream.recv_until(b'"a"')
        one.router.signal(signal.SIGUSR2)
        pid = (await one.begins())["pid"]
        os.kill(pid, signal.SIGKILL)
        event = await one.router.next_event("restart failed")
        assert "SIGKILL" in event["why"]
        assert not is_alive(pid)
        go.set()
        assert (await stream.recv_response()).complete
        stream.close()
        assert await one.status("/readyz") == 200


@long_scenario
async def test_the_old_process_is_killed_while_the_new_one_prepares(tmp_path: Path) -> None:
    """The new process must not live on without a request to serve."""
    async with restarting(tmp_path) as one:
        await one.hostile.stop_listening()  # the new process waits for the replica
        one.router.signal(signal.SIGUSR2)
        pid = (await one.begins())["pid"]
        one.router.child.kill()
        one.hostile.start(one.hostile.port)
        await eventually(lambda: not is_alive(pid), "the end of the new process", START_S)
