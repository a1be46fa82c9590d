"""The units of deploy/systemd with a running systemd: start, reload, restart, crash, stop."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.faults.restart.helpers import held
from tests.faults.restart.load import Load, slow_stream
from tests.faults.restart.machine import UNITS, Machine, booted, why_not
from tests.harness.client import RawClient
from tests.harness.messages import chat, request
from tests.harness.ports import free_port
from tests.harness.reading import Response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import scenario

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"no systemd can run: {why_not()}")

RULES = "timeouts: {keep_alive: 5}\ndrain: {lame_duck: 0, grace: 30}\n"
STREAMS, RATE = 10, 30.0
REPLACE = ("kill", "--kill-who=main", "--signal=USR2", "hedgerow")


class Service:
    """The service in a machine, its replica, and its data port."""

    def __init__(self, machine: Machine, hostile: HostileReplica) -> None:
        self.machine = machine
        self.hostile = hostile
        self.port = free_port()
        self.admin_port = free_port()

    def write(self, extra: str = "") -> None:
        self.machine.config.write_text(
            f"admin: 127.0.0.1:{self.admin_port}\nreplicas: ['{self.hostile.url}']\n{RULES}{extra}"
        )

    async def ask(self, data: bytes) -> Response:
        client = await RawClient.connect(self.port)
        try:
            await client.send(data)
            return await client.recv_response("POST")
        finally:
            client.close()

    async def serves(self) -> None:
        answer = await self.ask(chat("Connection: close", stream=True))
        assert (answer.status, answer.complete) == (200, True)

    async def replace(self) -> None:
        """Replace the program with the documented command."""
        before = await self.machine.main_pid()
        await self.machine.systemctl(*REPLACE)
        await self.until_pid(before)

    async def until_pid(self, before: int) -> int:
        """Wait until the main process of the service is another one; return it."""
        while (pid := await self.machine.main_pid()) in (0, before):
            await asyncio.sleep(0.05)
        return pid


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[Service]:
    """The units as shipped, except for the number of the port."""
    async with HostileReplica(slow_stream(10, 0.1)) as hostile:
        (folder / "machine").mkdir()
        async with booted(folder / "machine") as machine:
            one = Service(machine, hostile)
            machine.install()
            machine.write_unit(
                "hedgerow.socket.d/test.conf",
                f"[Socket]\nListenStream=\nListenStream=127.0.0.1:{one.port}\n",
            )
            one.write()
            await machine.systemctl("daemon-reload")
            await machine.systemctl("start", "hedgerow.socket", "hedgerow.service")
            yield one


@asynccontextmanager
async def loaded(one: Service) -> AsyncIterator[Load]:
    """Streams and new connections during the block. None of them may be lost."""
    load = Load(one.port)
    load.start(STREAMS, RATE, 2)
    async with asyncio.timeout(30):
        while load.streaming < STREAMS:
            await asyncio.sleep(0.02)
    yield load
    await asyncio.sleep(0.2)
    await load.end()
    assert not load.failed, load.failed
    assert all(load.done[kind] for kind in ("stream", "connect", "kept"))


@partial(scenario, limit_s=300.0)
async def test_reload_replacement_and_restart_lose_nothing(tmp_path: Path) -> None:
    async with service(tmp_path) as one:
        machine = one.machine
        assert await machine.shows("ActiveState") == "active"
        pid = await machine.main_pid()
        async with loaded(one):
            await machine.systemctl("reload", "hedgerow")
            await eventually(lambda: machine.events("reloaded"), "the reload")
            assert await machine.main_pid() == pid

            # The new process becomes the main process.
            await one.replace()
            second = await machine.main_pid()
            assert await machine.shows("ActiveState") == "active"

            # The old process goes on if the new one fails, and systemd shows why.
            one.write("nonsense: 1\n")
            await machine.systemctl("reload", "hedgerow", status=1)
            await machine.systemctl(*REPLACE)
            while not (shown := await machine.shows("StatusText")):
                await asyncio.sleep(0.05)
            assert "restart failed" in shown and "nonsense" in shown
            assert await machine.main_pid() == second
            one.write()

            # With the shipped drop-in file, `reload` replaces the program.
            name = "reload-replaces.conf"
            machine.write_unit(f"hedgerow.service.d/{name}", (UNITS / name).read_text())
            await machine.systemctl("daemon-reload")
            await machine.systemctl("reload", "hedgerow")
            third = await one.until_pid(second)
            assert await machine.shows("StatusText") == ""

            # New connections wait until the streams of the old process have ended.
            await machine.systemctl("restart", "hedgerow")
            assert await machine.main_pid() not in (0, third)
        assert len(machine.events("restarted")) == 2
        assert await machine.shows("NRestarts") == "0"
        await one.serves()


class Held:
    """Streams that have begun, and end when `go` is set."""

    def __init__(self, one: Service) -> None:
        self._one = one
        self._clients: list[RawClient] = []
        self.go = asyncio.Event()

    async def __call__(self, connection: ReplicaConnection) -> None:
        await held(self.go)(connection)

    async def begin(self) -> None:
        client = await RawClient.connect(self._one.port)
        await client.send(chat(stream=True))
        await client.recv_until(b'"a"')
        self._clients.append(client)

    async def end(self) -> None:
        """Let all streams end; none of them may have been cut."""
        self.go.set()
        for client in self._clients:
            assert (await client.recv_response()).complete
            client.close()
        self._clients.clear()
        self.go = asyncio.Event()


@partial(scenario, limit_s=300.0)
async def test_a_crash_and_a_stop(tmp_path: Path) -> None:
    async with service(tmp_path) as one:
        machine, streams = one.machine, Held(one)
        one.hostile.behave = streams

        async def crash(pid: int) -> None:
            """Kill the main process. A connection waits in the socket until the next start."""
            await machine.run("kill", f"-{signal.SIGKILL}", str(pid))
            client = await RawClient.connect(one.port)
            await client.send(request("/v1/models"))
            await streams.end()
            await one.until_pid(pid)
            while await machine.shows("ActiveState") != "active":
                await asyncio.sleep(0.05)
            assert (await client.recv_response()).status == 200
            client.close()

        pid = await machine.main_pid()
        await crash(pid)
        assert await machine.shows("NRestarts") == "1"

        # A crash of the new process cuts no stream of the old one.
        await streams.begin()
        await one.replace()
        await crash(await machine.main_pid())
        assert await machine.shows("NRestarts") == "2"

        # A stop lets the streams of all processes end, also if systemd has not started them.
        for _ in range(2):
            await streams.begin()
            await one.replace()
        await streams.begin()
        stopping = asyncio.ensure_future(
            machine.systemctl("stop", "hedgerow.socket", "hedgerow.service")
        )
        while await machine.shows("ActiveState") != "deactivating":
            await asyncio.sleep(0.05)
        assert await machine.processes() == 3
        await streams.end()
        await stopping
        assert await machine.shows("Result") == "success"
        assert await machine.processes() == 0
        with pytest.raises(ConnectionRefusedError):
            await one.ask(request("/v1/models"))
