"""Runs tasks in parallel, each in its own process. Results are in the order of the tasks.

The memory of a run is freed when its process ends. If a process crashes, its pipe is closed, and
`run_all` raises Broken. Processes are spawned, not forked, so they inherit no threads or signal
handlers.

Must never: leave a process running, or hang after a process has crashed.
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
from router.lab.simulator.traffic import TraceError

# Called with the number of finished runs and the progress text of another run.
Show = Callable[[int, str], None]
# Called with the number of finished runs and the number of all runs.
Finished = Callable[[int, int], None]
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Fleet(Protocol):
    """The simulated fleet of a task, such as a `Scenario`."""

    @property
    def replicas(self) -> int: ...


class Task(Protocol[R_co]):
    """A task for another process. It must be picklable."""

    @property
    def policy(self) -> str:
        """The policy's name, for error messages."""

    @property
    def scenario(self) -> Fleet:
        """The fleet; its number of replicas is used in error messages."""

    def run(self, line: TextIO | None = None) -> R_co:
        """Run the task. `line`: the stream for progress."""


class Refused(Exception):
    """The input of a run is invalid. The message is for the user."""


class Broken(Exception):
    """A run failed with an error that is not caused by its input."""


def run_all(
    jobs: Sequence[Task[R]],
    at_once: int,
    show: Show | None = None,
    finished: Finished | None = None,
) -> list[R]:
    """Run all jobs, at most `at_once` in parallel. The first failure stops all of them.

    `show`: gets the progress of a run. `finished`: is called at the start and after each run.
    Returns the results in the order of `jobs`. Raises Refused and Broken. After KeyboardInterrupt
    no process is left running.
    """
    if finished is not None:
        finished(0, len(jobs))
    if at_once == 1 or len(jobs) == 1:
        runs: list[R] = []
        for job in jobs:
            line = None if show is None else _Line(_later(show, lambda: len(runs)))
            runs.append(_done(_attempt(job, line)))
            if finished is not None:
                finished(len(runs), len(jobs))
        return runs
    return _Workers(jobs, at_once, show, finished).run()


class _Workers(Generic[R]):
    """The running processes, and the results of the finished processes."""

    def __init__(
        self,
        jobs: Sequence[Task[R]],
        at_once: int,
        show: Show | None,
        finished: Finished | None,
    ) -> None:
        self._jobs = jobs
        self._finished = finished
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
                    if self._receive(cast(Connection, pipe)):
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
        with _ignored_interrupts():
            process.start()
        theirs.close()
        self._at_work[ours] = (number, process)

    def _receive(self, pipe: Connection) -> bool:
        """Receive one message of a process. Returns True if it was the last message."""
        number, process = self._at_work[pipe]
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            process.join()
            job = self._jobs[number]
            raise Broken(
                f"{job.policy} on {job.scenario.replicas} replicas: its process crashed "
                f"(status {process.exitcode}; was it out of memory?)"
            ) from None
        if isinstance(message, str):
            # Only the progress of the first running job is shown: that job probably finishes first.
            if self._show is not None and number == min(n for n, _ in self._at_work.values()):
                self._show(len(self._runs), message)
            return False
        self._runs[number] = _done(message)
        del self._at_work[pipe]
        pipe.close()
        process.join()
        if self._finished is not None:
            self._finished(len(self._runs), len(self._jobs))
        return True


def _work(pipe: Connection, job: Task[Any], is_shown: bool) -> None:
    """Run a job in a new process: send its progress as texts, then its result or an error."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        pipe.send(_attempt(job, _Line(pipe.send) if is_shown else None))
    except BrokenPipeError:  # the parent no longer needs the result
        pass


def _end_with_parent() -> None:
    """Exit when the parent process has ended. A killed parent cannot stop its child processes
    itself.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _attempt(job: Task[R], line: Any) -> R | Exception:
    """Run a job. Errors are returned as values, because not every exception can be pickled."""
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
    """The output stream of a `ProgressLine`: passes each text to a function."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send

    def write(self, text: str) -> int:
        self._send(text.strip())
        return len(text)


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """A context in which new processes are started so that they ignore SIGINT.

    Only the parent handles Ctrl-C; it stops the other processes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
