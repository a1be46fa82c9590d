"""How many requests of one key are at replicas, and how many may be.

A request is counted from the moment it is sent to a replica (its ticket is granted, or it passed
the queue without a ticket) until it is over or waits again. Retries, second copies and
continuations belong to their request and are not counted again. A request that waits is not
counted.

The queue uses it like this. Tickets of a key with a limit that wait in one class queue are split in
two (`class_queue.KeyQueue`): at most as many as the key has free places stand in the class queue's
line, the others are blocked. Each change of the number of free places moves tickets between the two
at once. So the line never holds a ticket that may not be sent, and the code that chooses from it
need not know of limits.

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
    """Where tickets of one key with a limit wait."""

    __slots__ = ()

    @abstractmethod
    def fit(self, now: float) -> None:
        """The number of the key's free places has changed."""


class Concurrency:
    """The requests of one key at replicas, in all queues. `limit`: `None` for no limit."""

    __slots__ = ("batch", "entered", "limit", "own", "rows")

    def __init__(self, limit: int | None) -> None:
        self.limit = UNLIMITED if limit is None else limit
        self.own = 0  # requests at replicas that are not batch
        self.batch = 0  # batch requests at replicas
        self.entered = 0  # batch requests between their arrival and their end
        self.rows: dict[LimitedQueue, None] = {}  # where tickets of the key wait

    def adopt(self, limit: int | None, now: float) -> None:
        """Use another limit from now on. Requests at replicas stay there."""
        self.limit = UNLIMITED if limit is None else limit
        self._fit(now)

    def free(self, is_batch: bool) -> int:
        """How many more requests may be sent; 0 or less: none."""
        free = self.limit - self.own
        return free - self.batch if is_batch else free

    def may_pass(self, is_batch: bool) -> bool:
        """Whether a request that has just come may be sent before any ticket of the key."""
        return not self.rows and self.free(is_batch) > 0

    def may_enter(self) -> bool:
        """Whether the router takes one more batch request. Waiting batch requests count too, so
        that the batch server holds requests back instead of filling the queue."""
        return self.own + self.entered < self.limit

    def take(self, is_batch: bool, now: float) -> None:
        """Count a request that is sent, even if the limit does not allow it."""
        if is_batch:
            self.batch += 1
        else:
            self.own += 1
        self._fit(now)

    def give(self, is_batch: bool, now: float) -> None:
        """A counted request has ended or waits again."""
        if is_batch:
            self.batch -= 1
        else:
            self.own -= 1
        self._fit(now)

    def _fit(self, now: float) -> None:
        for row in self.rows:
            row.fit(now)
