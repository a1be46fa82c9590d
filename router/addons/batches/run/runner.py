"""Runs batches: validates them, lets `sending.py` send their lines, and ends them.

Each batch has one task, which moves the batch from one status to the next. Each step can be
repeated after a crash.

Must never: keep anything only in memory that is needed after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeVar

from router.addons.batches.api.shapes import errors_column
from router.addons.batches.run.job import Feed, Job
from router.addons.batches.run.lines import LineError, Validated, validate
from router.addons.batches.run.sender import Sender
from router.addons.batches.run.sending import Sending, Waiting
from router.addons.batches.secrets import Secret, Secrets
from router.addons.batches.store.blob_store import BlobStore
from router.addons.batches.store.results import write_results
from router.addons.batches.store.rows import (
    CANCELLED,
    CANCELLING,
    EXPIRED,
    FINALIZING,
    IN_PROGRESS,
    VALIDATING,
    Batch,
    File,
)
from router.addons.batches.store.store import Store
from router.config.model import Batches
from router.core.clock import time
from router.core.disk.worker import Worker
from router.observe.events import log_event

TROUBLE_S: Final = 2.0  # seconds after which a failed disk operation is tried again

T = TypeVar("T")


class Runner:
    """Runs all batches. Call `start` first, `rest` to drain, and `stop` once at the end.

    Clients' requests call `begin`, `met` and `cancel`.
    """

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        worker: Worker,
        rules: Batches,
        sender: Sender,
        waiting: Waiting | None = None,
        *,
        trouble_s: float = TROUBLE_S,
        rng: Random | None = None,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._worker = worker
        self._rules = rules
        self._trouble_s = trouble_s
        self._secrets = Secrets()
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._jobs: dict[int, Job] = {}
        self.lines = Sending(
            store,
            blobs,
            worker,
            rules,
            sender,
            self._secrets,
            waiting,
            trouble_s=trouble_s,
            rng=rng,
        )

    @property
    def running(self) -> int:
        """The number of unfinished batches."""
        return len(self._lives)

    async def start(self) -> None:
        """Begins to work on every unfinished batch. Raises sqlite3.Error."""
        for batch in await self._worker(self._store.unfinished):
            self.begin(batch)
            if batch.needs_secret and batch.status in (VALIDATING, IN_PROGRESS):
                log_event(logging.WARNING, "a batch waits for its client's key", batch=batch.id)
        self.lines.start()

    def begin(self, batch: Batch) -> None:
        """Starts the task of a batch, unless the batch has a task already."""
        if batch.number in self._lives:
            return
        if batch.needs_secret:
            self._secrets.hold(batch.owner)
        task = asyncio.create_task(self._live(batch))
        self._lives[batch.number] = task
        task.add_done_callback(lambda _: self._over(batch))

    def _over(self, batch: Batch) -> None:
        del self._lives[batch.number]
        if batch.needs_secret:
            self._secrets.release(batch.owner)

    def met(self, owner: str, secret: Secret) -> None:
        """Called when an owner has sent a request with the credentials that replicas require."""
        if self._secrets.learn(owner, secret):
            self.lines.wake()

    async def cancel(self, number: int) -> None:
        """Cancels the lines in progress of a batch, and then ends the batch.

        The status of the batch in the store must already be `cancelling`. Raises sqlite3.Error.
        """
        job = self._jobs.get(number)
        if job is not None and not job.ending.done():
            job.ending.set_result(CANCELLED)
        elif number not in self._lives:  # A defect of the router has ended the batch's task.
            self.begin(await self._worker(self._store.numbered, number))

    def rest(self) -> None:
        """Begins no more lines. Lines in progress may end."""
        self.lines.rest()

    async def stop(self) -> None:
        """Ends all tasks. A line without a result is sent again after the next start."""
        await self.lines.stop()
        lives = list(self._lives.values())
        for task in lives:
            task.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        await self.lines.close()

    # -- states of a batch --------------------------------------------------------------------

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
        except Exception as err:  # a defect of the router
            log_event(logging.ERROR, "a batch cannot continue", batch=batch.id, error=repr(err))
            # A batch that cannot be validated fails, or it would count as unfinished for ever.
            if batch.status == VALIDATING:
                await self._insist(lambda: self._give_up(batch))
            latest = await self._insist(lambda: self._worker(self._store.numbered, number))
            if latest.status == CANCELLING != batch.status:  # cancelled during the failed step
                await self._live(latest)

    async def _give_up(self, batch: Batch) -> None:
        trouble = LineError("internal_error", "The router failed to check the file.")
        await self._worker(self._store.failed, batch.number, errors_column([trouble]), int(time()))

    async def _insist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Runs a step, and repeats it until no disk operation fails. Every step can be repeated."""
        while True:
            try:
                return await act()
            except (OSError, sqlite3.Error) as err:
                log_event(logging.ERROR, "a batch waits because the disk failed", error=str(err))
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
        file = self._blobs.reading(batch.input_file)
        try:
            return await self._worker.steps(validate(file, batch.endpoint, rules.lines, rules.line))
        finally:
            await self._worker(file.close)

    async def _work_through(self, batch: Batch) -> Batch:
        feed = Feed(batch, self._store, self._blobs, self._rules.line)
        job = Job(batch, feed)
        self._jobs[batch.number] = job
        try:
            # The job is in `_jobs`, so `cancel` finds it. An earlier cancellation is in the store.
            batch = await self._worker(self._store.numbered, batch.number)
            if batch.status != IN_PROGRESS:
                return batch
            self.lines.join(job)
            try:
                async with asyncio.timeout(max(0.0, batch.expires_at - time())):
                    ending = await job.ending
            except TimeoutError:
                ending = EXPIRED
        finally:
            del self._jobs[batch.number]
            await self.lines.leave(job)
            await self._worker(feed.close)
        await self.lines.settled()
        if ending != CANCELLED:  # the store already has the status of a cancelled batch
            await self._worker(self._store.worked_through, batch.number, ending, int(time()))
        return await self._worker(self._store.numbered, batch.number)

    async def _end(self, batch: Batch) -> None:
        output, error = await self._worker.steps(
            write_results(batch, self._store, self._blobs, self._rules.line)
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
        """Deletes the results of an ended batch from the database.

        The result files of the batch contain the same results.
        """
        while await self._worker(self._store.purge, number):
            pass
