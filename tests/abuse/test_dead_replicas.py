"""Replicas that are dead for ever cost the router little CPU time, however many they are."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from tests.abuse.victim import PRICE
from tests.harness.process import serving, write_config
from tests.harness.running import long_scenario

COUNT = 300
# With the shorter intervals of tests: ten times the probes and polls of shipped intervals.
SETTLES_S, MEASURED_S = 8.0, 8.0
# Where page faults are expensive, system calls are, too.
CPU_S = 0.15 * min(1.5, PRICE) * MEASURED_S


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
            before = cpu_s(process.pid)
            await asyncio.sleep(MEASURED_S)
            used = cpu_s(process.pid) - before
            assert used < CPU_S, f"{used:.2f} s of CPU in {MEASURED_S} s"
