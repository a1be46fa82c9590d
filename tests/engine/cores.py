"""The core of a running engine, stopped and continued: a replica that lives and does nothing.

The engine's API server is another process: it still answers /health, and still takes requests and
sends their 200 and head.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engine.fleet import Engine
from tests.engine.processes import members_of_group

CORE = b"VLLM::EngineCore"  # what vLLM calls the process


def core_of(engine: Engine) -> int:
    """The process id of the engine's core."""
    cores = [pid for pid in members_of_group(engine.group) if _title(pid).startswith(CORE)]
    assert len(cores) == 1, f"{engine.name} has {len(cores)} cores"
    return cores[0]


@contextmanager
def stopped(engine: Engine) -> Iterator[None]:
    """The engine's core does nothing while the `with` lasts."""
    core = core_of(engine)
    os.kill(core, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(core, signal.SIGCONT)


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
