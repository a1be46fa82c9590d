"""Declares the metrics of this process's resources.

prometheus_client has such metrics as well, but they need its global registry.
"""

from __future__ import annotations

import os
import time
from typing import Final

from router.observe.families.family import COUNTER, GAUGE, Family

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int | None:
    """Returns the resident memory of this process in bytes; None if the system has no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return None


FAMILIES: Final[tuple[Family[None], ...]] = (
    Family(
        "process_cpu_seconds",
        COUNTER,
        "CPU time of this process, user and system.",
        lambda _: time.process_time(),
    ),
    Family(
        "process_resident_memory_bytes",
        GAUGE,
        "Resident memory of this process.",
        lambda _: resident_bytes(),
    ),
)
