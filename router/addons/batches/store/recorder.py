"""Writes the results of batch lines to the store.

Results that arrive during a commit are written together in the next commit. A result that cannot be
written, for example because the disk is full, is kept and written later. Until then `is_stuck` is
true, and no more lines are sent.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from typing import Final

from router.addons.batches.store.blob_store import BlobStore
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
