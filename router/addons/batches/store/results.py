"""Writes the two result files of an ended batch: the output file and the error file.

The files are written from the store, in the order of the batch's lines. So they can be written
again after a crash with the same result. `write_results` is a generator for the worker, which
yields after each `PIECE` bytes.

`Recorder`: writes the results of batch lines to the store.

Results that arrive during a commit are written together in the next commit. A result that cannot be
written, for example because the disk is full, is kept and written later. Until then `is_stuck` is
true, and no more lines are sent.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Generator
from typing import Final

from router.addons.batches.api.shapes import (
    CANCELLED as WAS_CANCELLED,
    EXPIRED as HAS_EXPIRED,
    unanswered,
)
from router.addons.batches.ids import request_id
from router.addons.batches.run.lines import PIECE, Cutter, parse
from router.addons.batches.store.blob_store import BlobStore, Draft
from router.addons.batches.store.rows import CANCELLED, EXPIRED, Batch
from router.addons.batches.store.store import Result, Store
from router.core.disk.worker import Worker
from router.observe.events import log_event

MOST: Final = 256  # maximum number of results in one transaction


class Recorder:
    """Writes results in a task of its own. `record` returns when its result is on disk."""

    def __init__(self, store: Store, blobs: BlobStore, worker: Worker, pause_s: float) -> None:
        self._store = store
        self._blobs = blobs
        self._worker = worker
        self._pause_s = pause_s
        self._waiting: deque[tuple[Result, asyncio.Future[None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self.is_stuck = False

    async def record(self, result: Result) -> None:
        """Records a result. If the caller is cancelled, its result is still recorded."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, done))
        if self._task is None:
            self._task = asyncio.create_task(self._write())
        await done

    async def settled(self) -> None:
        """Waits until all results for which `record` was called are on disk."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def close(self, timeout_s: float) -> None:
        """Writes waiting results, for at most `timeout_s` seconds.

        Lines whose results are not written are sent again after the next start.
        """
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=timeout_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _write(self) -> None:
        waiting = self._waiting
        try:
            while waiting:
                some = [waiting[n] for n in range(min(len(waiting), MOST))]
                try:
                    await self._worker(self._keep, [result for result, _ in some])
                except (sqlite3.Error, OSError) as err:
                    self.is_stuck = True
                    log_event(logging.ERROR, "batch results cannot be written", error=str(err))
                    await asyncio.sleep(self._pause_s)
                    continue
                self.is_stuck = False
                for _, done in some:
                    waiting.popleft()
                    if not done.done():
                        done.set_result(None)
        finally:
            self._task = None

    def _keep(self, results: list[Result]) -> None:
        self._blobs.check_room(0)
        self._store.record(results)


_WHY: Final = {CANCELLED: WAS_CANCELLED, EXPIRED: HAS_EXPIRED}


def write_results(
    batch: Batch, store: Store, blobs: BlobStore, longest: int
) -> Generator[None, None, tuple[int, int]]:
    """Writes the output file and the error file. Returns the size of each in bytes.

    A file without lines is not written; its size is 0. `longest`: the maximum bytes of a line of
    the batch file. Raises OSError and sqlite3.Error. After an error the function may be called
    again.
    """
    blobs.check_room(0)
    sizes = []
    for name, is_good in ((batch.next_output, True), (batch.next_error, False)):
        draft = blobs.draft(name)
        try:
            draft.open()
            yield from _copy(draft, store, batch.number, is_good)
            if not is_good and batch.total and batch.ending in _WHY:
                yield from _add_unanswered(draft, batch, store, blobs, longest)
            if draft.bytes:
                draft.keep()
            sizes.append(draft.bytes)
        finally:
            draft.drop()
    return sizes[0], sizes[1]


def _copy(draft: Draft, store: Store, number: int, is_good: bool) -> Generator[None, None, None]:
    line = 0
    is_more = True
    while is_more:
        is_more = False
        held = bytearray()
        rows = store.results(number, is_good, line)
        for line, record in rows:  # noqa: B007  (`line` is used after the loop, in the next query)
            held += record
            if len(held) >= PIECE:
                is_more = True
                break
        rows.close()  # while a query is open, the database's write-ahead log cannot shrink
        draft.write(held)
        yield


def _add_unanswered(
    draft: Draft, batch: Batch, store: Store, blobs: BlobStore, longest: int
) -> Generator[None, None, None]:
    """Writes an error for every line without a result: the batch was cancelled or has expired."""
    code, message = _WHY[batch.ending]
    file = blobs.reading(batch.input_file)
    try:
        cutter = Cutter(file, longest)
        while not cutter.is_over:
            held = bytearray()
            for line in _requests(cutter, batch.endpoint, store, batch.number):
                held += unanswered(request_id(batch.id, line[0]), line[1], code, message)
            draft.write(held)
            yield
    finally:
        file.close()


def _requests(
    cutter: Cutter, endpoint: str, store: Store, number: int
) -> Generator[tuple[int, str], None, None]:
    """Yields the number and the custom_id of each line in the next piece that has no result."""
    found = list(cutter.take())
    if found:
        done = store.recorded(number, found[0][0], found[-1][0])
        for at, raw in found:
            if at not in done:
                yield at, parse(at, raw, endpoint).custom_id
