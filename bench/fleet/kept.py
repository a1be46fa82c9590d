"""Keeps the finished rounds of a run in a file, so that an interrupted run can be continued.

The file is one JSON document, which is replaced as a whole after each round. It contains the
commit, the build, the machine and all options that change the figures. Must never mix rounds of
different runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import msgspec

from bench.fleet.run import Row


class KeptError(Exception):
    """The file cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The commit, the build, the machine and the options on which a run's figures depend."""

    commit: str
    build: str  # whether the program is compiled
    machine: str
    contestants: tuple[str, ...]
    workloads: tuple[str, ...]
    load: float
    seed: int
    size: str


@dataclass(slots=True)
class _Document:
    plan: Plan
    rounds: dict[int, list[Row]]


class Kept:
    """The finished rounds of a run. Without a path they are kept in memory only."""

    def __init__(self, path: Path | None, plan: Plan) -> None:
        """Read the file, or create a file without rounds.

        Raises KeptError if the file belongs to another run or cannot be written.
        """
        self._path = path
        self._document = _Document(plan, {})
        if path is None:
            return
        if not path.exists():
            self._write(path)
            return
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Document)
        except (OSError, msgspec.DecodeError) as error:
            raise KeptError(f"{path} has no rounds of this bench: {error}") from None
        for name, wanted in asdict(plan).items():
            if getattr(found.plan, name) != wanted:
                raise KeptError(
                    f"{path} is of another run, with {name} {getattr(found.plan, name)!r} instead "
                    f"of {wanted!r}; name another file, or delete this one"
                )
        self._document = found

    @property
    def rows(self) -> list[Row]:
        """The rows of all finished rounds, in the order of the rounds."""
        rounds = self._document.rounds
        return [row for number in sorted(rounds) for row in rounds[number]]

    def has(self, number: int) -> bool:
        return number in self._document.rounds

    def add(self, number: int, rows: list[Row]) -> None:
        """Add the rows of a finished round to the file. Raises KeptError if the file cannot be
        written.
        """
        self._document.rounds[number] = rows
        if self._path is not None:
            self._write(self._path)

    def _write(self, path: Path) -> None:
        fresh = path.with_name(path.name + ".new")
        try:
            fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self._document), indent=1))
            os.replace(fresh, path)
        except OSError as error:
            raise KeptError(f"{path} cannot be written: {error.strerror}") from None


def commit() -> str:
    """The commit of this checkout, with `-dirty` if files were changed; the version without git."""
    git = shutil.which("git")
    if git is not None:
        done = subprocess.run(
            [git, "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            return done.stdout.strip()
    return version("hedgerow")
