"""Marks the begin and the end of measured work, for a clock or for callgrind's instruction counter.

Must never import the router.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from pathlib import Path
from time import thread_time
from typing import Final

_PAIRS: Final = 1000  # empty pairs of `begin` and `end`, with which their own cost is measured

# The source of a C library that provides callgrind's macros as functions. It also replaces the
# monotonic clock of the process and of its event loop: the clock advances by 4 µs whenever it is
# read. So the machine's speed does not decide which timers expire. The clock begins
# 31 years after the start of the machine: a thread that waits for the GIL until a time that the
# real clock has passed would count each of its tries.
SHIM: Final = """
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/callgrind.h>
static long long now_ns = 1000000000000000000;
int clock_gettime(clockid_t clock, struct timespec *found) {
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
        return syscall(SYS_clock_gettime, clock, found);
    now_ns += 3815;
    found->tv_sec = now_ns / 1000000000;
    found->tv_nsec = now_ns % 1000000000;
    return 0;
}
void toggle(void) { CALLGRIND_TOGGLE_COLLECT; }
void on(void) { CALLGRIND_START_INSTRUMENTATION; }
void off(void) { CALLGRIND_STOP_INSTRUMENTATION; }
void dump(void) { CALLGRIND_DUMP_STATS; }
"""


class Marks(ABC):
    """Counts the work between `begin` and `end`, minus the cost of the two calls."""

    own = 0.0  # the cost of a pair of `begin` and `end` without work

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def end(self) -> None: ...

    @abstractmethod
    def take(self) -> float:
        """Return the count since the last `take`."""

    def calibrate(self) -> None:
        self.own = 0.0
        for _ in range(_PAIRS):
            self.begin()
            self.end()
        self.own = self.take() / _PAIRS


class Clock(Marks):
    """Measures the CPU time of this thread in µs, which other processes hardly change."""

    def __init__(self) -> None:
        self._began = self._spent = 0.0
        self._pairs = 0
        self.calibrate()

    def begin(self) -> None:
        self._began = thread_time()

    def end(self) -> None:
        self._spent += thread_time() - self._began
        self._pairs += 1

    def take(self) -> float:
        cost = self._spent * 1e6 - self._pairs * self.own
        self._spent, self._pairs = 0.0, 0
        return cost


class Counter(Marks):
    """Counts instructions of this thread.

    The process runs under callgrind with `--collect-atstart=no` and writes to `folder`/out.
    """

    def __init__(self, folder: Path) -> None:
        self._shim = ctypes.CDLL(str(folder / "marks.so"))
        self._toggle = self._shim.toggle
        self._folder = folder
        self._pairs = 0
        self._dumps = 0
        self.switch(True)
        self.calibrate()
        self.switch(False)

    def switch(self, on: bool) -> None:
        """Switch callgrind on or off. While it is off, the process runs ten times as fast."""
        (self._shim.on if on else self._shim.off)()

    def begin(self) -> None:
        self._pairs += 1
        self._toggle()

    def end(self) -> None:
        self._toggle()

    def take(self) -> float:
        self._shim.dump()
        self._dumps += 1
        file = self._folder / f"out.{self._dumps}"
        [totals] = [line for line in file.read_text().splitlines() if line.startswith("totals:")]
        file.unlink()
        cost = float(totals.split()[1]) - self._pairs * self.own
        self._pairs = 0
        return cost
