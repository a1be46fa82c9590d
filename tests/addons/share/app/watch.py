"""Measures how long the event loop stands still, on a machine that other programs use, too."""

import asyncio
import os
from time import perf_counter_ns
from types import TracebackType
from typing import Self

TICK_S = 0.005
PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """A timer of 5 ms in this loop, which also looks at the memory of the process.

    The kernel counts the time in which this thread could run and had no CPU. It is left out.
    """

    def __init__(self) -> None:
        self.stall_s = 0.0  # the longest one
        self.grown = 0  # the most bytes by which the memory grew

    def __enter__(self) -> Self:
        names = ("/proc/thread-self/schedstat", "/proc/self/statm")
        self._files = [os.open(name, os.O_RDONLY) for name in names]
        self._held = self._memory()
        self._at_s = self.now_s()
        self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None
    ) -> None:
        self._timer.cancel()
        for file in self._files:
            os.close(file)

    def now_s(self) -> float:
        """A clock that stands still while this thread waits for a CPU."""
        return (perf_counter_ns() - self._read(0, 1)) / 1e9

    def excuse(self) -> None:
        """Do not count what the test itself has just done without a pause."""
        self._at_s = self.now_s()

    def _memory(self) -> int:
        return self._read(1, 1) * PAGE

    def _read(self, file: int, field: int) -> int:
        return int(os.pread(self._files[file], 200, 0).split()[field])

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = self.now_s()
        self.stall_s = max(self.stall_s, now - self._at_s - TICK_S)
        self.grown = max(self.grown, self._memory() - self._held)
        self._at_s = now
        self._wait()
