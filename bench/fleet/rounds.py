"""Plays the workloads against all compared routers in rounds, and prints how long that takes.

In a round every router gets the same requests of each workload, at the same times (a script). The
scripts and the order of the routers differ from round to round, so that no router is always first
and no figure depends on one script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from bench.fleet.contestants import Ready
from bench.fleet.kept import Kept
from bench.fleet.run import Row, Workload
from bench.overhead.plan import turns

# Seconds per router and workload in addition to the length of the script: start of the engines and
# the router, and the last answers.
START_S = 4.0


class Stage(Protocol):
    """Measures one router under one workload."""

    def measure(self, kind: type[Ready], workload: Workload, round: int) -> Row: ...


def play(
    stage: Stage,
    kinds: Sequence[type[Ready]],
    prepare: Callable[[int], Sequence[Workload]],
    count: int,
    kept: Kept,
    say: Callable[[str], None],
) -> None:
    """Play the rounds 0 to `count` - 1 that are not in `kept`, and add their rows to `kept`.

    `prepare` returns the workloads of a round. Raises KeptError if a round cannot be written to the
    file.
    """
    missing = [number for number in range(count) if not kept.has(number)]
    if missing:
        each_s = expected_s(prepare(missing[0]), len(kinds))
        say(f"{_left(missing, each_s)}, if all contestants are installed")
    while missing:
        number = missing.pop(0)
        began = monotonic()
        rows = []
        for workload in prepare(number):
            for kind in turns(kinds, number):
                say(f"round {number + 1} of {count}: {kind.name}, {workload.name}")
                rows.append(stage.measure(kind, workload, number))
                if rows[-1].absent:
                    say(f"  absent: {rows[-1].absent}")
        kept.add(number, rows)
        if missing:
            say(_left(missing, monotonic() - began))


def expected_s(workloads: Sequence[Workload], contestants: int) -> float:
    """Expected length of one round in seconds."""
    return contestants * sum(workload.script.until + START_S for workload in workloads)


def _left(missing: Sequence[int], each_s: float) -> str:
    return f"{len(missing)} rounds of {each_s:.0f} s are left: {len(missing) * each_s / 60:.0f} min"
