"""Runs tasks side by side: one process each, so many at a time, results in the order of the tasks.

A process of its own gives a run its memory back at its end, and its death is noticed as the end of
its pipe. Processes are spawned, not forked: nothing of the parent's threads or signals is in them.

Must never: leave a process behind, or hang because one has died.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from traceback import format_exc
from typing import Any, Generic, Protocol, TextIO, TypeVar, cast

from policies.contract import PolicyConfigError
from router.simulator.scenario import Scenario
from router.simulator.traffic import TraceError

Show = Callable[[int, str], None]  # how many runs are done, and what one of the others says
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Task(Protocol[R_co]):
    """What can be run: plain values, which are sent to another process."""

    @property
    def policy(self) -> str:
        """Its name in error messages."""

    @property
    def scenario(self) -> Scenario:
        """The fleet, also for error messages."""

    def run(self, line: TextIO | None = None) -> R_co:
        """Run it. `line`: where to write how far it is."""


class Refused(Exception):
    """A run that cannot be, for what it was given; the message is for whoever gave it."""


class Broken(Exception):
    """A run that went wrong; the message says how."""


def run_all(jobs: Sequence[Task[R]], at_once: int, show: Show | None = None) -> list[R]:
    """All runs, in the order of `jobs`. The first that fails ends them all.

    Raises Refused and Broken; KeyboardInterrupt leaves no process behind.
    """
    if at_once == 1 or len(jobs) == 1:
        runs: list[R] = []
        for job in jobs:
            line = None if show is None else _Line(_later(show, lambda: len(runs)))
            runs.append(_done(_attempt(job, line)))
        return runs
    return _Workers(jobs, at_once, show).run()


class _Workers(Generic[R]):
    """The processes at work and what they have brought."""

    def __init__(self, jobs: Sequence[Task[R]], at_once: int, show: Show | None) -> None:
        self._jobs = jobs
        self._at_once = at_once
        self._show = show
        self._runs: dict[int, R] = {}
        self._at_work: dict[Connection, tuple[int, BaseProcess]] = {}

    def run(self) -> list[R]:
        waiting = iter(enumerate(self._jobs))
        try:
            for _ in range(self._at_once):
                self._start(next(waiting, None))
            while self._at_work:
                for pipe in wait(list(self._at_work)):
                    if self._hear(cast(Connection, pipe)):
                        self._start(next(waiting, None))
        finally:
            for pipe, (_, process) in self._at_work.items():
                process.terminate()
                process.join()
                pipe.close()
        return [self._runs[number] for number in range(len(self._jobs))]

    def _start(self, numbered: tuple[int, Task[R]] | None) -> None:
        if numbered is None:
            return
        number, job = numbered
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_work, args=(theirs, job, self._show is not None), daemon=True
        )
        with _deaf_to_interrupts():
            process.start()
        theirs.close()
        self._at_work[ours] = (number, process)

    def _hear(self, pipe: Connection) -> bool:
        """One message; True if it was the last of its run."""
        number, process = self._at_work[pipe]
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            process.join()
            job = self._jobs[number]
            raise Broken(
                f"{job.policy} on {job.scenario.replicas} replicas: its process died "
                f"(status {process.exitcode}; killed for want of memory?)"
            ) from None
        if isinstance(message, str):
            # Of those at work the first one speaks: it will be done first.
            if self._show is not None and number == min(n for n, _ in self._at_work.values()):
                self._show(len(self._runs), message)
            return False
        self._runs[number] = _done(message)
        del self._at_work[pipe]
        pipe.close()
        process.join()
        return True


def _work(pipe: Connection, job: Task[Any], is_shown: bool) -> None:
    """The whole life of a process. What it sends last is not a text."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        pipe.send(_attempt(job, _Line(pipe.send) if is_shown else None))
    except BrokenPipeError:  # nobody waits for it any more
        pass


def _end_with_parent() -> None:
    """A parent that is killed cannot end its processes: they see it themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _attempt(job: Task[R], line: Any) -> R | Exception:
    """Errors are values here: not every exception survives the way to another process."""
    try:
        return job.run(line)
    except (TraceError, PolicyConfigError) as err:
        return Refused(str(err))
    except OSError as err:
        return Refused(f"{err.filename}: {err.strerror}" if err.filename else str(err))
    except Exception:
        return Broken(f"{job.policy} on {job.scenario.replicas} replicas:\n{format_exc()}")


def _done(found: R | Exception) -> R:
    if isinstance(found, Exception):
        raise found
    return found


def _later(show: Show, done: Callable[[], int]) -> Callable[[str], None]:
    return lambda text: show(done(), text)


class _Line(io.TextIOBase):
    """What a ProgressLine writes to, wherever it is shown in the end."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def write(self, text: str) -> int:
        self._tell(text.strip())
        return len(text)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started within never hear Ctrl-C: it is for the parent, which ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
