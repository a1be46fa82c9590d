"""Fresh virtual environments under build/install, and commands that run in them.

A failed command raises Failed with its output. Every command has a time limit, so that a hanging
download does not block the check for ever.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.install.pythons import Python
from tests.places import ROOT

FOLDER = ROOT / "build" / "install"
LIMIT_S = 1800.0
_SHOWN_CHARS = 6000
# Variables that would let this process's own environment into the fresh one.
_REMOVED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "HEDGEROW_COMPILE", "CC", "CFLAGS")


class Failed(Exception):
    """One step of the check failed; the text names it and has its output."""


def clean_environ(**changes: str) -> dict[str, str]:
    """This process's environment variables without the ones that point to its own Python."""
    kept = {name: value for name, value in os.environ.items() if name not in _REMOVED}
    return {**kept, **changes}


def run(
    command: Sequence[str | Path], environ: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> str:
    """Run one command to its end; returns its standard output. Raises Failed."""
    words = [str(word) for word in command]
    environ = clean_environ() if environ is None else environ
    try:
        done = subprocess.run(
            words, cwd=cwd, env=environ, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words)}: not done within {LIMIT_S:.0f} s") from None
    if done.returncode:
        output = (done.stdout + done.stderr)[-_SHOWN_CHARS:]
        raise Failed(f"{' '.join(words)}: exit status {done.returncode}\n{output}")
    return done.stdout


class Environment:
    """A virtual environment that contains only pip."""

    def __init__(self, name: str, python: Python) -> None:
        self.folder = FOLDER / f"{name}-{python.minor}"
        shutil.rmtree(self.folder, ignore_errors=True)
        run([python.path, "-m", "venv", self.folder])
        self.bin = self.folder / "bin"
        self.python = self.bin / "python"
        self.command = self.bin / "hedgerow"

    def install(self, *what: str | Path, **environ: str) -> None:
        """`pip install` with further environment variables."""
        command = [self.python, "-m", "pip", "install", "--quiet", *what]
        run(command, clean_environ(**environ))
