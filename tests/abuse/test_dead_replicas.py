"""Replicas that are dead for ever cost the router little CPU time, however many they are."""

import asyncio
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.harness.process import serving, write_config
from tests.harness.running import long_scenario

COUNT = 300
# With the shorter intervals of tests: ten times the probes and polls of shipped intervals.
SETTLES_S, MEASURED_S = 8.0, 8.0
ATTEMPTS = 350  # connection attempts per second of the router
PRICE = 14.0  # CPU of the router per attempt, in attempts of a plain asyncio program


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connects() -> int:
    """TCP connections that programs of this machine have opened so far, or tried to."""
    names, values = (
        line.split()
        for line in Path("/proc/net/snmp").read_text().splitlines()
        if line.startswith("Tcp:")
    )
    return int(values[names.index("ActiveOpens")])


async def plain_attempts_s(port: int, count: int = 2000) -> float:
    """CPU seconds of one attempt to connect to the dead port that is given up after a turn."""
    loop = asyncio.get_running_loop()
    before = time.process_time()
    for _ in range(count):
        with socket.socket() as sock:
            sock.setblocking(False)
            connecting = asyncio.ensure_future(loop.sock_connect(sock, ("127.9.0.1", port)))
            await asyncio.sleep(0)
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
    return (time.process_time() - before) / count


@pytest.mark.parametrize("backlog", [None, 0], ids=["refused", "never accepted"])
@long_scenario
async def test_dead_replicas(backlog: int | None, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    with socket.socket() as sock:
        sock.bind(("0.0.0.0", 0))
        if backlog is not None:
            sock.listen(backlog)
        port = sock.getsockname()[1]
        urls = [f"http://127.9.{n // 250}.{n % 250 + 1}:{port}" for n in range(COUNT)]
        write_config(config, *urls, extra="access_log: {path: ''}\n")
        command = (sys.executable, "-m", "router")
        async with serving(config, command=command) as process:
            await asyncio.sleep(SETTLES_S)  # The pauses have reached their maximum.
            used, attempts = cpu_s(process.pid), connects()
            await asyncio.sleep(MEASURED_S)
            used, attempts = cpu_s(process.pid) - used, connects() - attempts
        plain_s = await plain_attempts_s(port)
    assert 0 < attempts < ATTEMPTS * MEASURED_S, f"{attempts} in {MEASURED_S} s"
    price = used / attempts / plain_s
    assert price < PRICE, f"{used:.2f} s for {attempts}, {plain_s * 1e6:.0f} us is usual: {price}"
