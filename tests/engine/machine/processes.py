"""Real processes for the tests: started under the guard, ready or failed, stopped at the end.

A `Service` never outlives the test run and never fails silently: its output is in its log, and
every error raised here ends with the end of that log.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.places import ROOT

T = TypeVar("T")

POLL_S = 0.05
KILL_WITHIN_S = 20.0  # seconds from the signal until the last process of the group has ended
TAIL_LINES = 60


class ServiceFailed(Exception):
    """A server process ended or did not become ready; contains the end of its log."""


def eventually(probe: Callable[[], T], within_s: float, what: Callable[[], str] | str) -> T:
    """Poll until `probe` returns a true value and return it; fail after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not (answer := probe()):
        if time.monotonic() > deadline:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {within_s:.0f} s: {told}")
        time.sleep(POLL_S)
    return answer


class Service:
    """One command with all its processes, and its log (every start appends to it)."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] = {}
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.environment = dict(environment)
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as out:
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "tests.engine.machine.guard", *self.command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def group(self) -> int:
        """The process group of all processes of the running service."""
        assert self._guard is not None
        return self._guard.pid

    def is_running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    def wait_ready(self, is_ready: Callable[[], bool], within_s: float) -> None:
        """Return when `is_ready` is true; raise ServiceFailed when it ends or takes too long."""

        def ready_or_ended() -> bool:
            return not self.is_running() or is_ready()

        try:
            eventually(ready_or_ended, within_s, f"{self.name} ready")
        except AssertionError as failure:
            raise ServiceFailed(f"{failure}\n{self.tail()}") from None
        if not self.is_running():
            raise ServiceFailed(f"{self.name} ended before it was ready\n{self.tail()}")

    def kill(self) -> None:
        """SIGKILL to every process of the service at once; returns when none is left."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        try:
            os.killpg(guard.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        guard.wait()
        assert guard.stdin is not None
        guard.stdin.close()
        eventually(
            lambda: not members_of_group(guard.pid),
            KILL_WITHIN_S,
            lambda: f"{self.name} gone, left: {members_of_group(guard.pid)}",
        )

    def tail(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines = "\n".join(text.splitlines()[-TAIL_LINES:])
        return f"--- the end of {self.log} ---\n{lines}"


def members_of_group(group: int) -> list[int]:
    """Living processes of a process group; zombies, which only init can reap, do not count."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # "pid (comm) state ppid pgrp ...": comm may contain spaces and brackets.
            state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == group and state not in "ZX":
            members.append(int(entry.name))
    return members
