"""Counts the requests of one API key at replicas, and applies the key's limit of such requests.

A request is counted from the moment it is sent to a replica (its ticket is granted, or it passed
the queue without a ticket) until it is over or waits again. Retries, second copies and
continuations belong to their request and are not counted again. A request that waits is not
counted.

In the queue, the tickets of a key with a limit are divided into two parts (`class_queue.KeyQueue`).
The class queue's line contains at most as many tickets as the key has free places; the others are
blocked. Each change of the number of free places moves tickets between the two parts at once. So
every ticket in the line may be sent, and the code that chooses from the line ignores limits.

Requests of class batch may use only the places that other requests leave free. A batch request is
blocked while all requests of the key together use the limit. Other requests are blocked only while
the requests that are not batch use the limit.

Must never: add work to requests of keys without limits, or depend on the key itself.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from mypy_extensions import trait

UNLIMITED: Final = 1 << 60


@trait
class LimitedQueue:
    """A class queue in which tickets of one key with a limit wait."""

    __slots__ = ()

    @abstractmethod
    def fit(self, now: float) -> None:
        """Move tickets, because the number of free places of the API key has changed."""


class Concurrency:
    """The requests of one API key at replicas, in all queues. `limit`: `None` for no limit."""

    __slots__ = ("batch", "entered", "limit", "own", "rows")

    def __init__(self, limit: int | None) -> None:
        self.limit = UNLIMITED if limit is None else limit
        self.own = 0  # Requests at replicas that are not of class batch.
        self.batch = 0  # Batch requests at replicas.
        self.entered = 0  # Batch requests that have arrived and not ended, waiting or running.
        # The class queues that hold tickets of the API key.
        self.rows: dict[LimitedQueue, None] = {}

    def adopt(self, limit: int | None, now: float) -> None:
        """Use another limit from now on. Requests that are at replicas are not stopped."""
        self.limit = UNLIMITED if limit is None else limit
        self._fit(now)

    def free(self, is_batch: bool) -> int:
        """Return how many more requests may be sent; 0 or less: none."""
        free = self.limit - self.own
        return free - self.batch if is_batch else free

    def may_pass(self, is_batch: bool) -> bool:
        """Whether a new request may be sent at once: the key has a place that no ticket awaits."""
        return not self.rows and self.free(is_batch) > 0

    def may_enter(self) -> bool:
        """Whether one more batch request may enter the router. Waiting batch requests are counted,
        too, so that the batch server keeps its requests instead of filling the queue."""
        return self.own + self.entered < self.limit

    def take(self, is_batch: bool, now: float) -> None:
        """Count a request that is sent, even if the limit does not allow it."""
        if is_batch:
            self.batch += 1
        else:
            self.own += 1
        self._fit(now)

    def give(self, is_batch: bool, now: float) -> None:
        """Stop counting a request that has ended or waits again."""
        if is_batch:
            self.batch -= 1
        else:
            self.own -= 1
        self._fit(now)

    def _fit(self, now: float) -> None:
        for row in self.rows:
            row.fit(now)
