"""Counts the instructions that the router executes for each part in `parts`, with callgrind.

Runs the functions of `works`, which use no sockets, in one process under `valgrind
--tool=callgrind`. Only instructions between marks (`marks`) are counted. The event loop is uvloop,
as in the shipped program. In the counted process, the clock advances by a fixed step whenever it is
read (`marks.SHIM`), and string hashes are fixed. So the count does not depend on the machine's
speed, clock or other processes. It depends on the CPython build, the compiler and the libraries.

- A part with a goal in µs fails if its count is above the goal times `INSTRUCTIONS_PER_US`. If the
  recorded count in `COUNTED` is above it too, the part does not fail, and the excess is printed.
- Every part fails if its count is above `COUNTED` by more than `TOLERANCE` and `NOISE`, on the kind
  of build on which `COUNTED` was recorded.

After an improvement, put the new counts into `COUNTED`.

Needs valgrind (Debian package `valgrind`) and a C compiler. `python -m bench.overhead.instructions`
prints a table; its exit status is 1 if a part fails. Must never measure time.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from bench.overhead.goals import excess
from bench.overhead.parts import PARTS, Part
from bench.overhead.works import SHIM, WORKS, Counter, with_sums
from router.core.build import is_compiled

WARM: Final = 500  # operations of each part before the count, which fill all caches
RUNS: Final = 3  # most counts of a part that fails
COUNT: Final = 400  # operations of each part that are counted
TOLERANCE: Final = 1.03
# Instructions by which a part may differ between runs if it is a difference of two requests.
NOISE: Final = 1_000

# Instructions per µs of a goal: a JSON request in memory took 28 to 30 µs (`internal`) and 166,000
# instructions, on an AMD EPYC virtual machine with CPython 3.11. Parts that wait for memory, such
# as a deep queue, need more time per instruction; `internal` measures their time.
INSTRUCTIONS_PER_US: Final = 5_800

# Instruction counts of the compiled router on this kind of build, each the highest of several runs.
# Builds of CPython 3.11 differ by up to 10 %, two runs with one build by up to 4 %.
BUILD: Final = ("CPython", "3.11", "x86_64")
COUNTED: Final[Mapping[str, int]] = {
    "json_request": 88_100,
    "token": 8_000,
    "decision_64": 62_100,
    "decision_1024": 70_300,
    "queue_10": 21_050,
    "queue_100k": 21_050,
    "hedging_never": 3_100,
    "hedging_armed": 10_400,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One part's count, and whether the part fails."""

    part: Part
    count: float
    words: str
    fails: bool


def judge(part: Part, count: float, counted: int | None, *, same_build: bool) -> Judged:
    """Judge one part. `counted` is its recorded count, or None if there is none."""
    goal = None if part.goal_us is None else part.goal_us * INSTRUCTIONS_PER_US
    words, fails = [], False
    if goal is not None:
        if count <= goal:
            words.append(f"goal {goal:,.0f}, met")
        else:
            words.append(f"goal {goal:,.0f}, missed by {excess(count, goal)}")
            # The part does not fail if its recorded count is above the goal too.
            fails = counted is None or counted <= goal
    if counted is not None and same_build:
        most = counted * TOLERANCE + NOISE
        if count > most:
            words.append(f"limit {most:,.0f}, missed by {excess(count, most)}")
            fails = True
        else:
            words.append(f"limit {most:,.0f}, met")
    return Judged(part, count, "; ".join(words) or "no limit", fails)


def judge_all(counts: Mapping[str, float]) -> list[Judged]:
    """Judge every part that was counted."""
    return [
        judge(part, counts[part.name], COUNTED.get(part.name), same_build=is_same_build())
        for part in PARTS
        if part.name in counts
    ]


def judge_counts(count_once: Callable[[], Mapping[str, float]]) -> list[Judged]:
    """Count until no part fails, at most `RUNS` times, and judge the smallest counts.

    The counts of the same program differ by up to 4 % between runs, most often upwards and while
    other work uses the machine. A part that has become slower is too slow in every run.
    """
    counts: dict[str, float] = {}
    judged: list[Judged] = []
    for _ in range(RUNS):
        for name, each in count_once().items():
            counts[name] = min(each, counts.get(name, each))
        judged = judge_all(counts)
        if not any(each.fails for each in judged):
            break
    return judged


def is_same_build() -> bool:
    version = ".".join(platform.python_version_tuple()[:2])
    return (platform.python_implementation(), version, platform.machine()) == BUILD


def count() -> dict[str, float]:
    """Return the instructions per operation of each part. Raises RuntimeError."""
    programs = {name: shutil.which(name) for name in ("valgrind", "cc")}
    if missing := [name for name, path in programs.items() if path is None]:
        raise RuntimeError(f"{missing[0]} is not installed (Debian packages valgrind and gcc)")
    with tempfile.TemporaryDirectory(prefix="hedgerow-bench-") as folder:
        source, shim = Path(folder, "marks.c"), Path(folder, "marks.so")
        source.write_text(SHIM)
        build = ["cc", "-O2", "-shared", "-fPIC", "-o", str(shim), str(source)]
        built = subprocess.run(build, capture_output=True, text=True)
        if built.returncode:
            raise RuntimeError(f"valgrind's marks could not be compiled: {built.stderr[-1000:]}")
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no"]
        command += [f"--callgrind-out-file={folder}/out", sys.executable]
        command += ["-m", "bench.overhead.instructions", "--serve", folder]
        # String hashes are fixed, because collisions in dicts would otherwise differ between runs.
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONMALLOC": "pymalloc"}
        environment["LD_PRELOAD"] = str(shim)  # the library that replaces the clock
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the counted process failed: {done.stderr[-2000:]}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


async def serve(folder: Path) -> dict[str, float]:
    """Count the instructions of every part. This process must run under callgrind."""
    counter = Counter(folder)
    costs: dict[str, float] = {}
    for name, prepare in WORKS.items():
        work = await prepare(folder)
        await work(counter, WARM)
        gc.collect()
        gc.freeze()
        counter.switch(True)
        costs[name] = await work(counter, COUNT)
        counter.switch(False)
    return with_sums(costs)


def main() -> int:
    if len(sys.argv) == 3 and sys.argv[1] == "--serve":
        print(json.dumps(uvloop.run(serve(Path(sys.argv[2])))))
        return 0
    if not is_compiled():
        print("the router is not compiled; COUNTED is of compiled code", file=sys.stderr)
    judged = judge_counts(count)
    for each in judged:
        mark = "FAILS" if each.fails else ""
        print(f"{each.part.title:36} {each.count:>10,.0f}  {each.words}  {mark}".rstrip())
    return 1 if any(each.fails for each in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
