"""Starts the child processes of a run on their CPUs, and makes sure that they end.

If the bench is killed, no process remains: `Orderly` children stop when their stdin closes, and the
kernel stops the routers (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Placement:
    """CPUs for the router under test, and CPUs for everything else. An empty set means all CPUs."""

    router: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()

    @classmethod
    def choose(cls, pin: bool) -> Placement:
        """Choose one CPU for the router under test and another for load and upstreams, if possible.

        Load generators and upstreams share a single CPU, because runs differ if an upstream moves
        between CPUs.
        """
        cpus = sorted(os.sched_getaffinity(0))
        if not pin or len(cpus) < 2:
            return cls()
        return cls(frozenset(cpus[:1]), frozenset(cpus[1:2]))


def start(
    command: list[str],
    cpus: Iterable[int] = (),
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own. Its output goes to `log`, or is discarded."""
    wanted = frozenset(cpus)

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if wanted:
            os.sched_setaffinity(0, wanted)

    with open(log or os.devnull, "wb") as sink:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=prepare,
        )


def stop(process: subprocess.Popen[Any], grace_s: float = 3.0) -> None:
    """Stop the whole process group: SIGTERM first, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            continue
        break
    # Child processes that outlived `process` are still in its group.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Orderly:
    """A Python child process that exchanges lines of JSON with the bench, and ends when its stdin
    closes.
    """

    def __init__(self, module: str, *arguments: str, cpus: Iterable[int] = ()) -> None:
        wanted = frozenset(cpus)
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=(lambda: os.sched_setaffinity(0, wanted)) if wanted else None,
        )

    def read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, order: Mapping[str, Any]) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            stop(self.process)

    def __enter__(self) -> Orderly:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def wait_for(url: str, within_s: float) -> None:
    """Wait until the URL returns a good status; raises OSError after the timeout."""
    end = time.monotonic() + within_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def free_port() -> int:
    """Return a loopback port that is free now, for programs that cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
