"""Sends the lines of running batches when the fleet has capacity.

A line of a batch file is one request. One task starts all lines. `concurrency_window.py` chooses
the next line, so that owners take turns, and limits the lines in progress of each owner and
model, based on the router's responses. So the limits of one tenant do not delay other tenants. If
the router has a queue, up to `AHEAD` lines wait in it, so that a free replica always gets a line.
Further lines wait in this module, where they need little memory.

Memory is bounded: the lines by `HELD_MOST` bytes, the lines in progress by `concurrency`, and large
responses by the sender.

Must never: end a batch. `runner.py` does.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from router.addons.batches.ids import request_id
from router.addons.batches.run.concurrency_window import FIRST, ConcurrencyWindow, LineScheduler
from router.addons.batches.run.job import NEVER, Job
from router.addons.batches.run.lines import Line
from router.addons.batches.run.sender import Answer, Sender
from router.addons.batches.run.verdict import Verdict, backoff_s, outcome_of
from router.addons.batches.secrets import Secret, Secrets
from router.addons.batches.store.blob_store import BlobStore
from router.addons.batches.store.results import Recorder
from router.addons.batches.store.rows import COMPLETED
from router.addons.batches.store.store import Result, Store
from router.config.model import Batches
from router.core.clock import monotonic
from router.core.disk.worker import Worker
from router.observe.events import log_event

HELD_MOST: Final = 64 * 1024 * 1024  # with this many bytes of lines in memory, no more are read
PACES_MOST: Final = 1024  # with this many concurrency windows, the unused windows are removed
LAST_WORDS_S: Final = 5.0  # maximum seconds to write the remaining results at a stop

# Maximum number of batch requests that wait for one model in the router's queue. It is as many as
# the queue compares by cached prefix when a replica is free (`queue.affinity`).
AHEAD: Final = 64
# Each owner may have this many lines of a model in progress, even if `AHEAD` requests wait in the
# queue, because those may belong to other owners.
LEAST: Final = 8
CROWDED_S: Final = 0.25  # seconds between two checks of the queue's length
# After this many turns of the event loop, a line that has its connection is in the router's queue.
TURNS: Final = 4

# A response with more bytes is handled in the worker's thread, or it would block the event loop.
LARGE: Final = 256 * 1024

# The type of the function that returns how many requests of class batch wait before the requests of
# an owner, for a model.
Waiting = Callable[[str, str], int]


class Sending:
    """Sends the lines of all jobs. A job is a running batch.

    Call `start`, then `join` and `leave` for every job, `rest` to drain, and `stop` once.
    """

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        worker: Worker,
        rules: Batches,
        sender: Sender,
        secrets: Secrets,
        waiting: Waiting | None,
        *,
        trouble_s: float,
        rng: Random | None = None,
    ) -> None:
        """`waiting`: None if the router has no queue.

        `trouble_s`: the seconds until a failed disk operation is tried again.
        """
        self._worker = worker
        self._rules = rules
        self._sender = sender
        self._secrets = secrets
        self._waiting = waiting
        self._trouble_s = trouble_s
        self._rng = Random() if rng is None else rng
        self._recorder = Recorder(store, blobs, worker, trouble_s)
        self._jobs: set[Job] = set()
        self._turns: LineScheduler[Job] = LineScheduler()
        self._paces: dict[tuple[str, str], ConcurrencyWindow] = {}  # by owner and model
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._resting = False
        # Whether a line was not sent because enough lines wait in the router's queue.
        self._crowded = False
        # The request IDs of lines that were sent but are not yet in the router's queue.
        self._leaving: set[str] = set()
        self.held = 0  # bytes of all lines in memory
        self.under_way = 0  # number of lines in progress
        # The number of attempts since the start, by verdict.
        self.ended = {verdict.value: 0 for verdict in Verdict}

    def start(self) -> None:
        self._task = asyncio.create_task(self._send_all())

    def join(self, job: Job) -> None:
        self._jobs.add(job)
        self._turns.add(job.batch.owner, job)
        self._wake.set()

    async def leave(self, job: Job) -> None:
        """Removes a job and cancels its lines in progress.

        Results that already came are on disk after a call of `settled`.
        """
        self._jobs.discard(job)
        self._turns.discard(job.batch.owner, job)
        for task in job.tasks:
            task.cancel()
        await asyncio.gather(*job.tasks, return_exceptions=True)
        self.held -= job.held

    async def settled(self) -> None:
        """Waits until all results so far are on disk."""
        await self._recorder.settled()

    def wake(self) -> None:
        """Lets the task check again whether a line may be sent."""
        self._wake.set()

    def rest(self) -> None:
        """Begins no more lines. Lines in progress may end."""
        self._resting = True

    async def stop(self) -> None:
        """Stops sending. `leave` may still be called."""
        self._resting = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        """Writes the remaining results. Must be called after `leave` for every job."""
        await self._recorder.close(LAST_WORDS_S)

    # -- the next line ------------------------------------------------------------------------

    async def _send_all(self) -> None:
        while True:
            self._wake.clear()
            await self._send_ready()
            try:
                async with asyncio.timeout(self._idle_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _send_ready(self) -> None:
        """Starts every line that may be sent now."""
        self._crowded = False
        while not self._resting and self.under_way < self._rules.concurrency:
            if self._recorder.is_stuck:
                return
            now = monotonic()
            job = self._turns.next(partial(self._is_ready, now))
            if job is None:
                return
            line = job.next(now)
            if line is None:
                await self._fill(job)
                continue
            job.pop(now)
            self._begin(job, line, now)

    def _is_ready(self, now: float, job: Job) -> bool:
        batch = job.batch
        if job.ending.done() or (batch.needs_secret and self._secrets.find(batch.owner) is None):
            return False
        line = job.next(now)
        if line is None:
            return job.wants_lines(now) and (self.held < HELD_MOST or not self.under_way)
        pace = self._pace_of(batch.owner, line.model)
        if not pace.admits(now):
            return False
        waiting = self._waiting
        if waiting is None or pace.under_way < LEAST:
            return True
        if len(self._leaving) + waiting(batch.owner, line.model) < AHEAD:
            return True
        self._crowded = True
        return False

    def _pace_of(self, owner: str, model: str) -> ConcurrencyWindow:
        pace = self._paces.get((owner, model))
        if pace is None:
            if len(self._paces) >= PACES_MOST:
                self._paces = {name: p for name, p in self._paces.items() if p.under_way}
            most = self._rules.concurrency
            # If the router has a queue, its length limits the lines, so the window begins at its
            # maximum. A refusal halves the window.
            pace = ConcurrencyWindow(most, FIRST if self._waiting is None else most)
            self._paces[owner, model] = pace
        return pace

    async def _fill(self, job: Job) -> None:
        try:
            lines = await self._worker(job.feed.take)
            if not job.ending.done():
                self.held += job.took(lines)
        except (OSError, sqlite3.Error) as err:
            job.reads_at = monotonic() + self._trouble_s
            log_event(logging.ERROR, "batch lines cannot be read", error=str(err))
        except Exception as err:  # the input file is not the file that was validated
            if not job.ending.done():
                job.ending.set_exception(err)
        _check_done(job)

    def _idle_s(self) -> float | None:
        """Return the seconds until the task must check again; None: it waits until it is woken."""
        if self._recorder.is_stuck:
            return self._trouble_s
        now = monotonic()
        # If the time of a retry has passed, the line waits for the concurrency window. The end of
        # another line wakes this task.
        times = [job.next_due(now) for job in self._jobs]
        times += [pace.resumes_at for pace in self._paces.values() if pace.resumes_at > now]
        if self._crowded:
            times.append(now + CROWDED_S)
        first = min(times, default=NEVER)
        # 5 ms more, so that the time has certainly passed when the task wakes.
        return None if first == NEVER else first - now + 0.005

    # -- one line -----------------------------------------------------------------------------

    def _begin(self, job: Job, line: Line, now: float) -> None:
        pace = self._pace_of(job.batch.owner, line.model)
        pace.left()
        self.under_way += 1
        secret = self._secrets.find(job.batch.owner) if job.batch.needs_secret else None
        name = request_id(job.batch.id, line.number)
        self._leaving.add(name)
        task = asyncio.create_task(self._send(job, line, name, pace, secret, now))
        job.tasks.add(task)
        task.add_done_callback(partial(self._sent, job))

    def _arrive(self, name: str, turns: int = TURNS) -> None:
        """Called when a line has its connection.

        After `turns` turns of the event loop, the line counts as being in the router's queue.
        """
        if turns:
            asyncio.get_running_loop().call_soon(self._arrive, name, turns - 1)
        else:
            self._leaving.discard(name)
            self._wake.set()

    async def _send(
        self,
        job: Job,
        line: Line,
        name: str,
        pace: ConcurrencyWindow,
        secret: Secret | None,
        now: float,
    ) -> None:
        batch = job.batch
        tries = job.tries.get(line.number, 0) + 1
        is_judged = False
        try:
            async with self._sender.ask(
                batch.endpoint,
                line.body,
                name,
                batch.owner,
                secret,
                on_connected=partial(self._arrive, name),
            ) as answer:
                is_last = tries >= self._rules.attempts
                verdict, record = await self._judge(name, line, answer, is_last)
                is_judged = True
                self.ended[verdict.value] += 1
                if verdict is Verdict.BUSY:
                    pause_s = answer.retry_after_s
                    if self._waiting is not None and answer.is_queue_full:
                        # The stated pause is only an estimate. This module itself knows when fewer
                        # lines wait in the queue, so it uses the shorter default.
                        pause_s = None
                    job.comes_again(line, pace.refused(now, monotonic(), pause_s))
                    return
                if verdict is Verdict.AGAIN:
                    pace.gone()
                    job.tries[line.number] = tries
                    if not is_last:
                        due = monotonic() + backoff_s(tries, self._rng.random())
                        job.comes_again(line, due)
                        return
                else:
                    pace.answered()
                # The next line may be sent while the result of this line is written.
                self._wake.set()
                is_good = verdict is Verdict.DONE
                await self._recorder.record(Result(batch.number, line.number, is_good, record))
        finally:
            self._leaving.discard(name)
            if not is_judged:
                pace.gone()
        self.held -= job.over_with(line)

    async def _judge(
        self, name: str, line: Line, answer: Answer, is_last: bool
    ) -> tuple[Verdict, bytes]:
        if len(answer.body) < LARGE:
            return outcome_of(name, line.custom_id, answer, is_last)
        return await self._worker(outcome_of, name, line.custom_id, answer, is_last)

    def _sent(self, job: Job, task: asyncio.Task[None]) -> None:
        job.tasks.discard(task)
        self.under_way -= 1
        self._wake.set()
        if task.cancelled():
            return  # `leave` has cancelled the task
        err = task.exception()
        if err is not None and not job.ending.done():
            # The exception is a defect of the router. The batch must not complete, because this
            # line has no result.
            job.ending.set_exception(err)
        _check_done(job)


def _check_done(job: Job) -> None:
    if job.is_done and not job.ending.done():
        job.ending.set_result(COMPLETED)
