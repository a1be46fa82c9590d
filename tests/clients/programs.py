"""Runs other programs for a test: clients and proxies that users have.

A program that is not installed skips its tests, except where `CI` is set: there it fails them.
No program outlives its test, whatever the test does.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Words = Sequence[str | Path]
LIMIT_S = 60.0  # upper bound for one run; twenty large bodies take 9 s beside other work
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"  # for users who are not root


def program(name: str) -> str:
    """The path of a program on this machine. Without it, the test is skipped; in CI, it fails."""
    path = shutil.which(name, path=_PATH)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"needs the program {name}")
    return path


@contextmanager
def started(words: Words, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends, then kill it and all processes of its group.

    `streams`: `stdout` and `stderr` of the program, as `subprocess` takes them.
    """
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, text=True, start_new_session=True, **streams
    ) as process:
        try:
            yield process
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def run(words: Words) -> tuple[int, str, str]:
    """Run a program to its end; return its exit status, its output and its errors."""
    with started(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err
