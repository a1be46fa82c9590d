"""Declares the metrics of this process: its build, its start and its resources.

The names with `process_` are those of Prometheus's client libraries. prometheus_client's own
collector of them lists all open files, which takes 3 us for each.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from functools import cache
from typing import Final

from router.core.build import VERSION, build_kind
from router.observe.families.family import INFO, Family, counter, gauge

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def _memory_bytes(field: int) -> int | None:
    """Return a field of /proc/self/statm in bytes; None if the system has no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[field]) * _PAGE_BYTES
    except OSError:
        return None


def resident_bytes() -> int | None:
    """Return the resident memory of this process in bytes; None if the system has no /proc."""
    return _memory_bytes(1)


@cache
def _started_at() -> float | None:
    """Return the time at which this process started; None if the system has no /proc."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The second field, the name of the program, may contain spaces.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_at + ticks / _TICKS_PER_S


@cache
def _build() -> dict[str, str]:
    return {"version": VERSION, "build": build_kind(), "python": platform.python_version()}


FAMILIES: Final[tuple[Family[None], ...]] = (
    Family("build", INFO, "The version of the program, and how it was built.", lambda _: _build()),
    gauge(
        "process_start_time_seconds",
        "Start of this process, in seconds since 1970.",
        lambda _: _started_at(),
    ),
    counter(
        "process_cpu_seconds",
        "CPU time of this process, user and system.",
        lambda _: time.process_time(),
    ),
    gauge(
        "process_resident_memory_bytes",
        "Resident memory of this process.",
        lambda _: resident_bytes(),
    ),
    gauge(
        "process_virtual_memory_bytes",
        "Virtual memory of this process.",
        lambda _: _memory_bytes(0),
    ),
    gauge(
        "process_open_fds",
        "Open files of this process; needs Linux 6.2.",
        # Older versions show the size 0.
        lambda _: os.stat("/proc/self/fd").st_size or None,
    ),
    gauge(
        "process_max_fds",
        "Maximum of files that this process may open.",
        lambda _: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    ),
)
