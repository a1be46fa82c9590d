"""Reads the CPU time and the memory of a process and all its descendants from /proc.

CPU time comes from each thread's `schedstat` (nanoseconds on the CPU, user and system) if no thread
ended between two readings. Otherwise it is `stat`'s utime + stime, which counts in steps of 10 ms
and includes ended threads. The time of a process that ended between two readings is lost; the
measured routers do not end processes.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the command's name (index 0 = state, 1 = ppid)."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def tree(root: int) -> list[int]:
    """Return the PIDs of `root` and its live descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit() and (fields := _stat(int(entry))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


@dataclass(slots=True)
class Reading:
    """CPU times of some processes at one moment."""

    ticks: dict[int, float] = field(default_factory=dict)  # pid -> CPU seconds, from `stat`
    user: dict[int, float] = field(default_factory=dict)  # pid -> CPU seconds outside the kernel
    threads: dict[int, dict[str, int]] = field(default_factory=dict)  # pid -> tid -> ns of CPU time
    # Pid -> ns in which threads waited for a CPU.
    waited: dict[int, int] = field(default_factory=dict)


def read(pids: Iterable[int]) -> Reading:
    reading = Reading()
    for pid in pids:
        fields = _stat(pid)
        if fields is None:
            continue
        reading.ticks[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
        reading.user[pid] = int(fields[11]) / _TICKS
        threads: dict[str, int] = {}
        waited = 0
        try:
            for tid in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{tid}/schedstat", "rb") as file:
                    ran, delay, _ = file.read().split()
                threads[tid] = int(ran)
                waited += int(delay)
        except (OSError, ValueError):
            continue  # schedstat is not available, or a thread just ended; `stat` is used instead
        reading.threads[pid] = threads
        reading.waited[pid] = waited
    return reading


def spent_s(before: Reading, after: Reading) -> float:
    """CPU seconds between two readings. A process that started in between counts from its start."""
    total = 0.0
    for pid, ticks in after.ticks.items():
        old, new = before.threads.get(pid), after.threads.get(pid)
        if old is not None and new is not None and old.keys() <= new.keys():
            total += sum(ns - old.get(tid, 0) for tid, ns in new.items()) / 1e9
        else:
            total += ticks - before.ticks.get(pid, 0.0)
    return total


def waited_s(before: Reading, after: Reading) -> float:
    """Seconds between two readings in which the processes were ready to run but had no CPU."""
    return sum(ns - before.waited.get(pid, 0) for pid, ns in after.waited.items()) / 1e9


def user_s(before: Reading, after: Reading) -> float:
    """CPU seconds outside the kernel between two readings, in steps of 10 ms."""
    return sum(user - before.user.get(pid, 0.0) for pid, user in after.user.items())


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in bytes. `rss` counts a page in each process that shares it; `pss` divides it among
    them.
    """

    rss: int
    pss: int


def memory(pids: Iterable[int]) -> Memory:
    """Return the resident memory of the processes. If Pss cannot be read, Rss is used instead."""
    rss = pss = 0
    for pid in pids:
        sizes = _rollup(pid)
        rss += sizes[0]
        pss += sizes[1]
    return Memory(rss, pss)


def _rollup(pid: int) -> tuple[int, int]:
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text()
        fields = dict(line.split(":", 1) for line in text.splitlines()[1:])
        return int(fields["Rss"].split()[0]) * 1024, int(fields["Pss"].split()[0]) * 1024
    except (OSError, KeyError):
        pass
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except OSError:
        return 0, 0
    return pages * os.sysconf("SC_PAGE_SIZE"), pages * os.sysconf("SC_PAGE_SIZE")


def machine_busy_s() -> float:
    """CPU seconds that all processes of this machine have used since boot, over all CPUs."""
    with open("/proc/stat", "rb") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / _TICKS


def model() -> str:
    """The processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
