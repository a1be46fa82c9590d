"""Runs tasks and keeps their results in a file, so that an interrupted bench can be continued.

Each finished run is one line of JSON. A line counts only for the same sources, task and length, so
that a change of the code measures everything again.

Must never: lose a finished run, or use a result of other code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.findings.sources import digest
from bench.priority.simulated.contests import Task
from bench.priority.simulated.seen import Run
from router.replay.workers import run_all

_SOURCES: Final = ("router", "policies", "bench/priority")


def run(
    tasks: Sequence[Task], jobs: int, file: Path | None, show: Callable[[int, int], None]
) -> list[Run]:
    """Return the results in the order of the tasks. `file`: finished runs; `None`: none are kept.

    `show` gets the numbers of finished runs and of all runs. Raises OSError and the errors of
    `run_all`.
    """
    found = {} if file is None else dict(_read(file))
    missing = [task for task in tasks if _key(task) not in found]
    for first in range(0, len(missing), jobs):
        show(len(tasks) - len(missing) + first, len(tasks))
        some = missing[first : first + jobs]
        for task, result in zip(some, run_all(some, jobs), strict=True):
            found[_key(task)] = result
            if file is not None:
                _append(file, _key(task), result)
    return [found[_key(task)] for task in tasks]


def _key(task: Task) -> str:
    length = task.length
    words = (task.case.name, task.contestant, task.seed, length.warm_s, length.measured_s)
    return f"{digest(*_SOURCES)[:16]} {words}"


def _read(file: Path) -> Iterator[tuple[str, Run]]:
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            content: dict[str, Any] = json.loads(line)
            yield content["key"], Run(**content["run"])
        except (ValueError, KeyError, TypeError):
            continue  # an interrupted write leaves a part of a line


def _append(file: Path, key: str, result: Run) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"key": key, "run": asdict(result)})
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"\n{line}\n")
