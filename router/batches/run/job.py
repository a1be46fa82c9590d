"""A running batch in memory: the next lines, lines to send again, and lines in progress.

A job does no I/O and reads no clock. Times are monotonic seconds.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from typing import Final

from router.batches.run.feed import Feed
from router.batches.run.lines import Line
from router.batches.store.rows import Batch

NEVER: Final = math.inf
AGAIN_MOST: Final = 64  # lines that wait for a retry; above this number no new line is begun


class Job:
    """One batch that is `in_progress`."""

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
        self.tasks: set[asyncio.Task[None]] = set()  # lines in progress
        self.tries: dict[int, int] = {}  # attempts, for lines that failed and are sent again
        self.reads_at = 0.0  # no read of the file before this time, because the disk failed
        self.held = 0  # bytes of all lines in memory
        # The reason why the batch ends, once it is known.
        self.ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._fresh: deque[Line] = deque()
        self._again: list[tuple[float, int, Line]] = []
        self._serial = 0

    def took(self, lines: list[Line]) -> int:
        """Adds the lines of the file that come next. Returns their size in bytes."""
        self._fresh.extend(lines)
        size = sum(len(line.body) for line in lines)
        self.held += size
        return size

    def comes_again(self, line: Line, due: float) -> None:
        self._serial += 1
        heapq.heappush(self._again, (due, self._serial, line))

    def over_with(self, line: Line) -> int:
        """A line has its result. Returns the line's size in bytes."""
        self.tries.pop(line.number, None)
        size = len(line.body)
        self.held -= size
        return size

    def wants_lines(self, now: float) -> bool:
        """Returns whether the next line must first be read from the file.

        The answer is no before `reads_at`, and while `AGAIN_MOST` lines wait for a retry.
        """
        if self._fresh or self.feed.is_over or now < self.reads_at:
            return False
        return len(self._again) < AGAIN_MOST

    @property
    def is_done(self) -> bool:
        return self.feed.is_over and not self._fresh and not self._again and not self.tasks

    def next_due(self, now: float) -> float:
        """Returns the time of the next event that happens by itself; NEVER if there is none."""
        again = self._again[0][0] if self._again else NEVER
        return min((at for at in (again, self.reads_at) if at > now), default=NEVER)

    def next(self, now: float) -> Line | None:
        """Returns the next line. The line stays in the job until `pop`."""
        if self._again and self._again[0][0] <= now:
            return self._again[0][2]
        if self._fresh and len(self._again) < AGAIN_MOST:
            return self._fresh[0]
        return None

    def pop(self, now: float) -> None:
        """Removes the line that `next` returned for the same time."""
        if self._again and self._again[0][0] <= now:
            heapq.heappop(self._again)
        else:
            self._fresh.popleft()
