"""Runs tasks and keeps their results in a file, so that an interrupted bench can be continued.

Each finished run is one line of JSON. A result is reused only for the same task and unchanged
source files of the project. After any change of the code, every task is run again.

Must never lose a finished run, reuse a result of different code, or change a file that does not
contain such results.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from router.lab.replay.workers import Task, run_all

_ROOT: Final = Path(__file__).parents[2]


@cache
def digest(*folders: str) -> str:
    """Return the SHA-256 hash of all Python files below these folders, in hexadecimal."""
    found = sha256()
    for folder in folders:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()


_SOURCES: Final = ("router", "policies", "bench")
_HEAD: Final = '{"run": '  # each line of the file begins with these bytes

R = TypeVar("R")  # the class of a result: a dataclass that JSON can represent
Show = Callable[[int, int], None]  # arguments: number of finished runs, number of all runs


class Store(Generic[R]):
    """The results of finished runs. Without a path, the results are not written to a file."""

    def __init__(self, path: Path | None, kind: type[R]) -> None:
        """`kind` is the class of the results. Raises OSError, and ValueError if the file contains
        anything other than such results.
        """
        self._path = path
        self._known: dict[str, R] = {}
        if path is not None and path.exists():
            self._known.update(_read(path, kind))

    def run(self, tasks: Sequence[Task[R]], at_once: int, show: Show | None = None) -> list[R]:
        """Return the results in the order of the tasks. Runs those that are not stored.

        Raises OSError and the errors of `run_all`.
        """
        names = [name(task) for task in tasks]
        missing = [number for number, one in enumerate(names) if one not in self._known]
        for first in range(0, len(missing), at_once):
            if show is not None:
                show(len(tasks) - len(missing) + first, len(tasks))
            some = missing[first : first + at_once]
            results = run_all([tasks[number] for number in some], at_once)
            for number, result in zip(some, results, strict=True):
                self._known[names[number]] = result
                self._append(names[number], result)
        return [self._known[one] for one in names]

    def _append(self, run: str, result: Any) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"run": run, "figures": asdict(result)})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")  # The file may end with an incomplete line.


def show(done: int, of: int) -> None:
    """Print the number of finished runs on standard error."""
    print(f"{done} of {of} runs", file=sys.stderr, flush=True)


def _read(path: Path, kind: type[R]) -> Iterator[tuple[str, R]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line:
            continue
        try:
            content = json.loads(line)
            yield content["run"], msgspec.convert(content["figures"], kind)
        except (ValueError, KeyError, TypeError) as err:
            # Skip an incomplete line, which an interrupted write leaves.
            if not (line.startswith(_HEAD) or _HEAD.startswith(line)):
                raise ValueError(f"{path} is no store of results: {err!r}") from None


def name(task: object) -> str:
    """Return the key under which a task's result is stored. It is the same in every process."""
    return sha256(f"{digest(*_SOURCES)} {words(task)}".encode()).hexdigest()


def words(task: object) -> str:
    """Return a task as text, without memory addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(task))
