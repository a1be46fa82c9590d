"""The figures of one run that the goals compare, and their store, which lets a bench be resumed.

Prefill tokens are those that the engines have computed, whatever they were computed for: winning
and losing copies, and prefixes that were no longer cached. Tokens of neighbours are not counted.

A stored figure is used again only for the same run: same scenario, traffic and sources of the
project. Must never use a figure of other code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Final

from bench.findings.sources import digest
from bench.hedging.simulated import nodes
from bench.hedging.simulated.task import Result, Task, play

_SOURCES: Final = ("router", "policies", "bench")


@dataclass(frozen=True, slots=True)
class Figures:
    """One run. Times in seconds; infinity: too many requests had no answer."""

    requests: int  # measured requests that may be hedged
    p50: float  # TTFT of requests that may be hedged
    p99: float
    slowest: float
    other_p99: float  # TTFT of all other requests
    hedged: int
    won: int
    copy_tokens: int  # uncached prompt tokens of all copies, as the router counts them
    prefilled_tokens: int  # by all engines, in the whole run
    preemptions: int  # by all engines, in the whole run

    @classmethod
    def of(cls, task: Task, result: Result) -> Figures:
        urgent, other = result.of(nodes.URGENT), result.of(nodes.OTHER)
        totals = result.totals
        foreign = sum(one.prompt_tokens for one in task.scenario.neighbours)
        return cls(
            urgent.requests,
            *(_known(urgent.ttft(q)) for q in (0.5, 0.99, 1.0)),
            _known(other.ttft(0.99)),
            urgent.hedged,
            urgent.won,
            totals.hedges.fired_tokens,
            sum(engine.prefilled_tokens for engine in totals.engines) - foreign,
            sum(engine.preemptions for engine in totals.engines),
        )


def _known(ttft_s: float | None) -> float:
    return inf if ttft_s is None else ttft_s


class Store:
    """The figures of finished runs, one JSON object a line. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        """Raises OSError, and ValueError for a file that is not a store."""
        self._path = path
        self._known: dict[str, Figures] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                one = json.loads(line)
                self._known[one["run"]] = Figures(**one["figures"])

    def run(self, tasks: Sequence[Task], at_once: int) -> list[Figures]:
        """The figures of these tasks, in their order. Runs those that are not stored.

        Raises the errors of `task.play`, and OSError.
        """
        if self._path is None:
            results = play(tasks, at_once)
            return [Figures.of(task, one) for task, one in zip(tasks, results, strict=True)]
        names = [_name(task) for task in tasks]
        missing = [n for n, name in enumerate(names) if name not in self._known]
        results = play([tasks[number] for number in missing], at_once) if missing else []
        with self._path.open("a", encoding="utf-8") as file:
            for number, result in zip(missing, results, strict=True):
                found = self._known[names[number]] = Figures.of(tasks[number], result)
                line = {"run": names[number], "figures": asdict(found)}
                file.write(json.dumps(line) + "\n")
        return [self._known[name] for name in names]


def _name(task: Task) -> str:
    return sha256(f"{digest(*_SOURCES)} {words(task)}".encode()).hexdigest()


def words(task: Task) -> str:
    """A task as text, which is the same in every process: without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(task))
