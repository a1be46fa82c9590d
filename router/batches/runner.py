"""Works batches through: validates them, sends their lines as the fleet has room, ends them.

One task sends; every batch has one task that walks it through its states, each step of which can be
done again after a crash. How many lines of a model are under way follows the router's answers
(`pace.py`); whose line is next is one turn each (`turns.py`); what is in memory is bounded in lines
and in bytes.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from time import monotonic, time
from typing import Final, TypeVar

from router.batches.feed import Feed
from router.batches.ids import request_id
from router.batches.job import NEVER, Job
from router.batches.lines import Line, Validated, is_json, validate
from router.batches.pace import Pace
from router.batches.recorder import Recorder
from router.batches.results import write_results
from router.batches.rows import (
    CANCELLED,
    CANCELLING,
    COMPLETED,
    EXPIRED,
    FINALIZING,
    IN_PROGRESS,
    VALIDATING,
    Batch,
    File,
)
from router.batches.sender import NO_ANSWER, Answer, Sender
from router.batches.shapes import answered, errors_column, unanswered
from router.batches.shelf import Shelf
from router.batches.store import Result, Store
from router.batches.turns import Turns
from router.batches.verdict import Verdict, backoff_s, judge
from router.batches.worker import Worker
from router.config.model import Batches
from router.observe.events import log_event

HELD_MOST: Final = 64 * 1024 * 1024  # bytes of lines in memory above which no more are read
PACES_MOST: Final = 256  # models whose pace is remembered
LAST_WORDS_S: Final = 5.0  # for results that wait to be written when we stop
TROUBLE_S: Final = 2.0  # before what the disk refused is tried again

T = TypeVar("T")


class Runner:
    """`start`, then `begin` and `cancel` as clients say, `rest` when draining, `stop` once."""

    def __init__(
        self,
        store: Store,
        shelf: Shelf,
        worker: Worker,
        rules: Batches,
        sender: Sender,
        *,
        trouble_s: float = TROUBLE_S,
        rng: Random | None = None,
    ) -> None:
        self._store = store
        self._shelf = shelf
        self._worker = worker
        self._rules = rules
        self._sender = sender
        self._trouble_s = trouble_s
        self._rng = Random() if rng is None else rng
        self._recorder = Recorder(store, worker, trouble_s)
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._jobs: dict[int, Job] = {}
        self._turns: Turns[Job] = Turns()
        self._paces: dict[str, Pace] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._resting = False
        self.held = 0  # bytes of lines in memory
        self.under_way = 0  # lines
        self.ended = {verdict.value: 0 for verdict in Verdict}  # attempts at lines, since the start

    @property
    def running(self) -> int:
        """Batches that are not over."""
        return len(self._lives)

    async def start(self) -> None:
        """Take up every batch that is not over. Raises sqlite3.Error."""
        for batch in await self._worker(self._store.unfinished):
            self.begin(batch)
        self._task = asyncio.create_task(self._send_all())

    def begin(self, batch: Batch) -> None:
        """Take up a batch, unless that was done."""
        if batch.number in self._lives:
            return
        task = asyncio.create_task(self._live(batch))
        self._lives[batch.number] = task
        task.add_done_callback(lambda _: self._lives.pop(batch.number, None))

    def cancel(self, number: int) -> None:
        """The books say `cancelling`: what is under way ends, and the batch."""
        job = self._jobs.get(number)
        if job is not None and not job.ending.done():
            job.ending.set_result(CANCELLED)

    def rest(self) -> None:
        """Begin no more lines; those under way may end."""
        self._resting = True

    async def stop(self) -> None:
        """End everything; what has no result is sent again after the next start."""
        self._resting = True
        lines = [task for job in self._jobs.values() for task in job.tasks]
        tasks = [*lines, *self._lives.values()]
        if self._task is not None:
            tasks.append(self._task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._recorder.close(LAST_WORDS_S)

    # -- a batch's way ------------------------------------------------------------------------

    async def _live(self, batch: Batch) -> None:
        number = batch.number
        try:
            if batch.status == VALIDATING:
                batch = await self._insist(lambda: self._validate(batch))
            if batch.status == IN_PROGRESS:
                batch = await self._insist(lambda: self._work_through(batch))
            if batch.status in (FINALIZING, CANCELLING):
                await self._insist(lambda: self._end(batch))
                await self._insist(lambda: self.purge(number))
        except Exception as err:
            log_event(logging.ERROR, "a batch is stuck", batch=batch.id, error=repr(err))

    async def _insist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Try until the disk agrees; every step can be done again."""
        while True:
            try:
                return await act()
            except (OSError, sqlite3.Error) as err:
                log_event(logging.ERROR, "a batch has to wait for the disk", error=str(err))
                await asyncio.sleep(self._trouble_s)

    async def _validate(self, batch: Batch) -> Batch:
        found = await self._judge_file(batch)
        now = int(time())
        store = self._store
        if found.errors:
            column = errors_column(found.errors)
            await self._worker(store.failed, batch.number, column, now)
        else:
            await self._worker(store.validated, batch.number, found.requests, now)
        return await self._worker(store.numbered, batch.number)

    async def _judge_file(self, batch: Batch) -> Validated:
        rules = self._rules
        file = self._shelf.reading(batch.input_file)
        try:
            return await self._worker.steps(validate(file, batch.endpoint, rules.lines, rules.line))
        finally:
            await self._worker(file.close)

    async def _work_through(self, batch: Batch) -> Batch:
        feed = Feed(batch, self._store, self._shelf, self._rules.line)
        job = Job(batch, feed)
        self._jobs[batch.number] = job
        try:
            # From here on `cancel` finds the job; one that came before is in the books.
            batch = await self._worker(self._store.numbered, batch.number)
            if batch.status != IN_PROGRESS:
                return batch
            self._turns.add(batch.owner, job)
            self._wake.set()
            try:
                async with asyncio.timeout(max(0.0, batch.expires_at - time())):
                    ending = await job.ending
            except TimeoutError:
                ending = EXPIRED
        finally:
            del self._jobs[batch.number]
            self._turns.discard(batch.owner, job)
            for task in job.tasks:
                task.cancel()
            await asyncio.gather(*job.tasks, return_exceptions=True)
            self.held -= job.held
            await self._worker(feed.close)
        await self._recorder.settled()
        if ending != CANCELLED:  # that is in the books already
            await self._worker(self._store.worked_through, batch.number, ending, int(time()))
        return await self._worker(self._store.numbered, batch.number)

    async def _end(self, batch: Batch) -> None:
        output, error = await self._worker.steps(
            write_results(batch, self._store, self._shelf, self._rules.line)
        )
        await self._worker(
            self._store.ended,
            batch.number,
            self._result_file(batch, batch.next_output, "output", output),
            self._result_file(batch, batch.next_error, "error", error),
            int(time()),
        )

    def _result_file(self, batch: Batch, name: str, what: str, size: int) -> File | None:
        if not size:
            return None
        now = int(time())
        expires_at = now + (batch.output_seconds or int(self._rules.retention_s))
        filename = f"{batch.id}_{what}.jsonl"
        return File(0, name, batch.owner, "batch_output", filename, size, now, expires_at)

    async def purge(self, number: int) -> None:
        """Delete the results of a batch that is over: they are in its files."""
        while await self._worker(self._store.purge, number):
            pass

    # -- lines --------------------------------------------------------------------------------

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
        """Begin every line that may begin now."""
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
            pace = self._pace_of(line.model)
            pace.left()
            self.under_way += 1
            task = asyncio.create_task(self._send(job, line, pace, now))
            job.tasks.add(task)
            task.add_done_callback(partial(self._sent, job))

    def _is_ready(self, now: float, job: Job) -> bool:
        if job.ending.done():
            return False
        line = job.next(now)
        if line is not None:
            return self._pace_of(line.model).admits(now)
        return job.wants_lines(now) and (self.held < HELD_MOST or not self.under_way)

    async def _fill(self, job: Job) -> None:
        try:
            lines = await self._worker(job.feed.take)
            if not job.ending.done():
                self.held += job.took(lines)
        except (OSError, sqlite3.Error) as err:
            job.reads_at = monotonic() + self._trouble_s
            log_event(logging.ERROR, "batch lines cannot be read", error=str(err))
        except Exception as err:  # it is not the file that was judged
            if not job.ending.done():
                job.ending.set_exception(err)
        self._check_done(job)

    def _idle_s(self) -> float | None:
        """How long nothing can change by itself; None: until somebody says so."""
        if self._recorder.is_stuck:
            return self._trouble_s
        now = monotonic()
        # What is due and still here waits for room, and the end of a line wakes us.
        times = [job.next_due(now) for job in self._jobs.values()]
        times += [pace.resumes_at for pace in self._paces.values() if pace.resumes_at > now]
        first = min(times, default=NEVER)
        # A moment later than due, so that whoever is woken finds it past.
        return None if first == NEVER else first - now + 0.005

    def _pace_of(self, model: str) -> Pace:
        pace = self._paces.get(model)
        if pace is None:
            if len(self._paces) >= PACES_MOST:
                self._paces = {m: p for m, p in self._paces.items() if p.under_way}
            pace = self._paces[model] = Pace(self._rules.concurrency)
        return pace

    async def _send(self, job: Job, line: Line, pace: Pace, now: float) -> None:
        batch = job.batch
        name = request_id(batch.id, line.number)
        try:
            answer = await self._sender.send(batch.endpoint, line.body, name, batch.authorization)
        except BaseException:
            pace.gone()
            raise
        verdict = _verdict(answer)
        self.ended[verdict.value] += 1
        if verdict is Verdict.BUSY:
            job.comes_again(line, pace.refused(now, monotonic(), answer.retry_after_s))
            return
        if verdict is Verdict.AGAIN:
            pace.gone()
            tries = job.tries[line.number] = job.tries.get(line.number, 0) + 1
            if tries < self._rules.attempts:
                pause = backoff_s(tries, self._rng.random())
                job.comes_again(line, monotonic() + pause)
                return
        else:
            pace.answered()
        # The next line may leave while this one is written down.
        self._wake.set()
        record = _record(name, line, answer)
        is_good = verdict is Verdict.DONE
        await self._recorder.record(Result(batch.number, line.number, is_good, record))
        self.held -= job.over_with(line)

    def _sent(self, job: Job, task: asyncio.Task[None]) -> None:
        job.tasks.discard(task)
        self.under_way -= 1
        self._wake.set()
        if task.cancelled():
            return  # and so is its batch
        err = task.exception()
        if err is not None and not job.ending.done():
            # A bug of ours: the batch must not end as if this line had its result.
            job.ending.set_exception(err)
        self._check_done(job)

    def _check_done(self, job: Job) -> None:
        if job.is_done and not job.ending.done():
            job.ending.set_result(COMPLETED)


def _verdict(answer: Answer) -> Verdict:
    if answer.status == NO_ANSWER:
        return Verdict.AGAIN
    verdict = judge(answer.status)
    if answer.problem:
        return Verdict.FAILED
    if verdict is Verdict.DONE and not is_json(answer.body):
        return Verdict.AGAIN
    return verdict


def _record(name: str, line: Line, answer: Answer) -> bytes:
    if answer.problem:
        code = "no_answer" if answer.status == NO_ANSWER else "response_too_large"
        return unanswered(name, line.custom_id, code, answer.problem)
    return answered(name, line.custom_id, answer.status, answer.body)
