"""The part of a running batch that is in memory: its next lines, retries, and lines in progress.

A line of a batch file is one request. A job does no I/O and reads no clock. Times are monotonic
seconds.

`Feed`: reads the lines of a batch file that have no result yet, one piece of the file at a time.

The position in the file is not stored. After a restart the file is read from its beginning, and
lines that have a result in the store are skipped. Called only in the worker's thread.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from typing import Final

from router.addons.batches.run.lines import Cutter, Line, parse
from router.addons.batches.store.blob_store import BlobStore
from router.addons.batches.store.rows import Batch
from router.addons.batches.store.store import Store


class Feed:
    """Return the lines of one batch file in their order, each line once."""

    def __init__(self, batch: Batch, store: Store, blobs: BlobStore, longest: int) -> None:
        self._batch = batch
        self._store = store
        self._file = blobs.reading(batch.input_file)
        self._cutter = Cutter(self._file, longest)
        # Lines that were read from the file, but for which no result was searched yet.
        self._found: list[tuple[int, bytes]] = []
        self.is_over = False

    def take(self) -> list[Line]:
        """Return the next lines. The list may be empty before the end; `is_over` marks the end.

        Raises OSError and sqlite3.Error. Raises Unusable if the file is not the file that was
        validated.
        """
        if not self._found:
            self._found = list(self._cutter.take())
        found: list[Line] = []
        if self._found:
            # If `recorded` raises, the lines stay in `_found` for the next call.
            first, last = self._found[0][0], self._found[-1][0]
            done = self._store.recorded(self._batch.number, first, last)
            endpoint = self._batch.endpoint
            found = [parse(at, raw, endpoint) for at, raw in self._found if at not in done]
            self._found = []
        self.is_over = self._cutter.is_over
        return found

    def close(self) -> None:
        self._file.close()


NEVER: Final = math.inf
AGAIN_MOST: Final = 64  # with this many lines that wait for a retry, no new line is begun


class Job:
    """One batch whose status is `in_progress`."""

    __slots__ = (
        "_again",
        "_fresh",
        "_serial",
        "batch",
        "ending",
        "feed",
        "held",
        "reads_at",
        "tasks",
        "tries",
    )

    def __init__(self, batch: Batch, feed: Feed) -> None:
        self.batch = batch
        self.feed = feed
        self.tasks: set[asyncio.Task[None]] = set()  # the tasks of the lines in progress
        # The number of attempts of each line that failed and is sent again, by line number.
        self.tries: dict[int, int] = {}
        self.reads_at = 0.0  # the file is not read before this time, because a read failed
        self.held = 0  # the bytes of all lines of this batch in memory
        # Set when the batch ends, to the next status or the error that ends it.
        self.ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._fresh: deque[Line] = deque()
        self._again: list[tuple[float, int, Line]] = []
        self._serial = 0

    def took(self, lines: list[Line]) -> int:
        """Adds lines that were read from the file. Returns their size in bytes."""
        self._fresh.extend(lines)
        size = sum(len(line.body) for line in lines)
        self.held += size
        return size

    def comes_again(self, line: Line, due: float) -> None:
        self._serial += 1
        heapq.heappush(self._again, (due, self._serial, line))

    def over_with(self, line: Line) -> int:
        """Called when a line has its result. Returns the line's size in bytes."""
        self.tries.pop(line.number, None)
        size = len(line.body)
        self.held -= size
        return size

    def wants_lines(self, now: float) -> bool:
        """Return whether more lines should be read from the file now.

        Returns False before `reads_at`, and while `AGAIN_MOST` lines wait for a retry.
        """
        if self._fresh or self.feed.is_over or now < self.reads_at:
            return False
        return len(self._again) < AGAIN_MOST

    @property
    def is_done(self) -> bool:
        return self.feed.is_over and not self._fresh and not self._again and not self.tasks

    def next_due(self, now: float) -> float:
        """Return the time of the next retry or of `reads_at`; NEVER if neither is to come."""
        again = self._again[0][0] if self._again else NEVER
        return min((at for at in (again, self.reads_at) if at > now), default=NEVER)

    def next(self, now: float) -> Line | None:
        """Return the next line to send. The line stays in the job until `pop` is called."""
        if self._again and self._again[0][0] <= now:
            return self._again[0][2]
        if self._fresh and len(self._again) < AGAIN_MOST:
            return self._fresh[0]
        return None

    def pop(self, now: float) -> None:
        """Removes the line that `next` returned for the same `now`."""
        if self._again and self._again[0][0] <= now:
            heapq.heappop(self._again)
        else:
            self._fresh.popleft()
