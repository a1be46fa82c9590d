"""Listening sockets from systemd, and the reports to it: sd_listen_fds(3) and sd_notify(3)."""

import asyncio
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.faults.restart.helpers import held, restarting
from tests.harness.behaviours import json_ok
from tests.harness.client import RawClient
from tests.harness.messages import chat, request
from tests.harness.ports import free_port
from tests.harness.process import START_S, RouterProcess, serving, write_config
from tests.harness.replica import HostileReplica
from tests.harness.running import long_scenario
from tests.places import ROOT


def launched(names: str, *socks: socket.socket) -> dict[str, object]:
    """Arguments of `serving`: the router gets these sockets."""
    fds = [sock.fileno() for sock in socks]
    program = ("tests.faults.restart.launch", names, *map(str, fds))
    return {"program": program, "pass_fds": fds}


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


@long_scenario
async def test_a_connection_waits_while_the_router_is_stopped(tmp_path: Path) -> None:
    """`systemctl restart`: the socket's queue keeps the connections until the next start."""
    async with HostileReplica(json_ok) as hostile:
        config = tmp_path / "config.yaml"
        write_config(config, hostile.url, extra="drain: {lame_duck: 0, grace: 5}\n")
        with socket.create_server(("127.0.0.1", 0)) as sock:
            early = await RawClient.connect(port_of(sock))
            await early.send(chat("Connection: close"))
            async with serving(config, **launched("listen", sock)) as router:  # type: ignore[arg-type]
                assert router.port == port_of(sock)
                assert (await early.recv_response("POST")).status == 200
                router.signal(signal.SIGTERM)
                assert await router.exit_status() == 0
            late = await RawClient.connect(port_of(sock))
            await late.send(chat("Connection: close"))
            async with serving(config, **launched("listen", sock)) as router:  # type: ignore[arg-type]
                assert (await late.recv_response("POST")).status == 200
                assert (await router.restart())["message"] == "restarted"
                client = await router.send(chat())
                assert (await client.recv_response("POST")).status == 200
                client.close()
            early.close()
            late.close()


@long_scenario
async def test_several_sockets_of_one_listener(tmp_path: Path) -> None:
    async with HostileReplica(json_ok) as hostile:
        config = tmp_path / "config.yaml"
        write_config(config, hostile.url, extra="drain: {lame_duck: 0, grace: 5}\n")
        with (
            socket.create_server(("127.0.0.1", 0)) as first,
            socket.create_server(("127.0.0.1", 0)) as second,
        ):
            given = launched("listen:listen", first, second)
            async with serving(config, **given) as router:  # type: ignore[arg-type]
                for _ in range(2):
                    for sock in (first, second):
                        client = await RawClient.connect(port_of(sock))
                        await client.send(chat("Connection: close"))
                        assert (await client.recv_response("POST")).status == 200
                        client.close()
                    assert (await router.restart())["message"] == "restarted"


@long_scenario
async def test_each_listener_and_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "data.sock"
    extra = "admin: {listen: 127.0.0.1:0, probes_listen: 127.0.0.1:1}\n"
    with socket.socket(socket.AF_UNIX) as data, socket.socket() as admin, socket.socket() as probes:
        data.bind(str(path))
        for sock in (admin, probes):
            sock.bind(("127.0.0.1", 0))
        for sock in (data, admin, probes):
            sock.listen()
        given = launched("probes:listen:admin", probes, data, admin)
        async with HostileReplica(json_ok) as hostile:
            config = tmp_path / "config.yaml"
            write_config(config, hostile.url, extra="drain: {lame_duck: 0, grace: 5}\n")
            config.write_text(config.read_text().replace("admin: 127.0.0.1:0\n", extra))
            async with serving(config, **given) as router:  # type: ignore[arg-type]
                for _ in range(2):
                    assert router.admin_port == port_of(admin)
                    for port, page, status in (
                        (port_of(admin), "/replicas", 200),
                        (port_of(probes), "/readyz", 200),
                        (port_of(probes), "/replicas", 404),
                    ):
                        client = await RawClient.connect(port)
                        await client.send(request(page, "Connection: close"))
                        assert (await client.recv_response()).status == status
                        client.close()
                    reader, writer = await asyncio.open_unix_connection(str(path))
                    writer.write(chat("Connection: close"))
                    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
                    writer.close()
                    assert (await router.restart())["message"] == "restarted"


@pytest.mark.parametrize(
    ("names", "why"),
    [("web", "no listener uses the socket 'web'"), ("listen:admin", "not a listening socket")],
)
@long_scenario
async def test_a_socket_that_cannot_be_used(tmp_path: Path, names: str, why: str) -> None:
    config = tmp_path / "config.yaml"
    write_config(config, "http://127.0.0.1:9")
    with socket.create_server(("127.0.0.1", 0)) as sock, socket.socket() as closed:
        given = launched(names, sock, closed) if ":" in names else launched(names, sock)
        with pytest.raises(AssertionError, match=why):
            async with serving(config, **given):  # type: ignore[arg-type]
                pass


@long_scenario
async def test_an_admin_socket_for_other_machines_needs_a_token(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    write_config(config, "http://127.0.0.1:9")
    with (
        socket.create_server(("0.0.0.0", 0)) as sock,
        pytest.raises(AssertionError, match="other machines can reach"),
    ):
        async with serving(config, **launched("admin", sock)):  # type: ignore[arg-type]
            pass


@long_scenario
async def test_systemd_is_told_what_happens(tmp_path: Path) -> None:
    go = asyncio.Event()
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()

        async def told() -> list[str]:
            async with asyncio.timeout(START_S):
                return (await loop.sock_recv(sock, 4096)).decode().split("\n")

        async with restarting(tmp_path, held(go), NOTIFY_SOCKET=path) as one:
            assert await told() == ["READY=1", "STATUS="]
            one.router.signal(signal.SIGHUP)
            reloading, usec, _ = await told()
            assert reloading == "RELOADING=1"
            assert usec.startswith("MONOTONIC_USEC=")
            assert await told() == ["READY=1", "STATUS="]
            one.write("nonsense: 1\n")
            one.router.signal(signal.SIGHUP)
            assert (await told())[0] == "RELOADING=1"
            ready, status = await told()
            assert ready == "READY=1"
            assert status.startswith("STATUS=reload refused: ")
            assert "nonsense" in status
            await one.router.restart()
            assert (await told())[0] == "RELOADING=1"
            ready, status = await told()
            assert ready == "READY=1"
            assert status.startswith("STATUS=restart failed: ")
            assert "nonsense" in status
            one.write()
            event = await one.router.restart()
            assert (await told())[0] == "RELOADING=1"
            assert await told() == [f"MAINPID={event['pid']}", "READY=1", "STATUS="]
            one.router.signal(signal.SIGTERM)
            assert await told() == ["STOPPING=1"]
            await one.router.next_event("drained")
            with pytest.raises(BlockingIOError):
                sock.recv(4096)  # the end of the old process is not the end of the service


@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None, reason="needs systemd-socket-activate"
)
@long_scenario
async def test_systemd_socket_activate(tmp_path: Path) -> None:
    """The real program opens the socket, and starts the router at the first connection."""
    hostile = HostileReplica(json_ok)
    hostile.start()
    config = tmp_path / "config.yaml"
    write_config(config, hostile.url, extra="drain: {lame_duck: 0, grace: 5}\n")
    port = free_port()
    child = await asyncio.create_subprocess_exec(
        *("systemd-socket-activate", "-l", f"127.0.0.1:{port}", "--fdname=listen"),
        *("-E", f"PYTHONPATH={ROOT}", sys.executable, "-m", "router", "serve"),
        *("--config", str(config)),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert child.stderr is not None
        while b"Listening on" not in await child.stderr.readline():
            pass
        client = await RawClient.connect(port)
        await client.send(chat())
        await RouterProcess(child).next_event("ready")
        assert (await client.recv_response("POST")).status == 200
        client.close()
    finally:
        child.terminate()
        await child.stderr.read()
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]
        await hostile.stop()
        await asyncio.sleep(0)
