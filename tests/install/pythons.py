"""Finds the CPython interpreters on this machine that can run and compile the program."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import which

NEWEST_MINOR = 20
OLDEST_MINOR = 11  # requires-python in pyproject.toml

_PROBE = """
import ensurepip, os, platform, sys, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
assert platform.python_implementation() == "CPython" and os.path.exists(header)
print(platform.python_version())
"""


@dataclass(frozen=True)
class Python:
    """One interpreter: its path and its version, such as 3.13.0."""

    path: str
    version: str

    @property
    def minor(self) -> str:
        return self.version.rpartition(".")[0]


def this_python() -> Python:
    """The interpreter that runs this check; it must be able to create a virtual environment."""
    path = getattr(sys, "_base_executable", sys.executable)
    found = _probe(path)
    if found is None:
        raise RuntimeError(
            f"{path} lacks venv, ensurepip or Python.h (Debian: python3-venv, python3-dev)"
        )
    return found


def other_pythons(besides: Python) -> list[Python]:
    """One interpreter for each other minor version on PATH or in pyenv's folder."""
    found: dict[str, Python] = {}
    for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1):
        for path in _candidates(f"3.{minor}"):
            python = _probe(path)
            if python is not None and python.minor == f"3.{minor}" != besides.minor:
                found.setdefault(python.minor, python)
    return list(found.values())


def _candidates(minor: str) -> list[str]:
    on_path = which(f"python{minor}")
    pyenv = Path.home() / ".pyenv" / "versions"
    return [
        *([on_path] if on_path else []),
        *map(str, sorted(pyenv.glob(f"{minor}.*/bin/python{minor}"))),
    ]


def _probe(path: str) -> Python | None:
    done = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True)
    return Python(path, done.stdout.strip()) if done.returncode == 0 else None
