"""Stops and continues the core of a running engine, or pins it to its own CPU core.

An engine with a stopped core is alive and does nothing. Its API server is another process: it still
answers /health, and still accepts requests and sends their 200 and head.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.engine.machine.fleet import Engine
from tests.engine.machine.processes import members_of_group

CORE = b"VLLM::EngineCore"  # vLLM's name of the process


def core_of(engine: Engine) -> int:
    """The process id of the engine's core."""
    cores = [pid for pid in members_of_group(engine.group) if _title(pid).startswith(CORE)]
    assert len(cores) == 1, f"{engine.name} has {len(cores)} cores"
    return cores[0]


@contextmanager
def stopped(engine: Engine) -> Iterator[None]:
    """Stop the engine's core for the duration of the `with` block."""
    core = core_of(engine)
    os.kill(core, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(core, signal.SIGCONT)


@contextmanager
def on_cores_of_their_own(engines: Sequence[Engine]) -> Iterator[None]:
    """Pin every engine to another CPU core, as replicas have their own machines.

    vLLM binds the computing threads of each to the first CPU core it sees. Two engines on one
    machine then share that core, and each slows the other down tenfold.
    """
    cores = sorted(os.sched_getaffinity(0))
    before: dict[int, set[int]] = {}
    if len(cores) >= len(engines):
        for engine, core in zip(engines, cores, strict=False):
            for thread in threads_of(engine):
                usual = os.sched_getaffinity(thread)
                if len(usual) < len(cores):
                    before[thread] = usual
                    os.sched_setaffinity(thread, {core})
    try:
        yield
    finally:
        for thread, usual in before.items():
            try:
                os.sched_setaffinity(thread, usual)
            except ProcessLookupError:
                pass


def threads_of(engine: Engine) -> list[int]:
    return [
        int(task.name)
        for process in members_of_group(engine.group)
        for task in Path(f"/proc/{process}/task").iterdir()
    ]


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
