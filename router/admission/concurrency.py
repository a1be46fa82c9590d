"""Counts the requests of one API key that run at replicas, and applies the key's limit of such
requests.

A request is counted from the time it is sent to a replica until it ends or returns to the queue.
Requests that bypass the queue are counted, too. Retries, second copies and resumed streams of a
request are not counted again.

In the queue, the tickets of a key with a limit are divided into two parts (`wait_lists.KeyQueue`).
The line (the ordered list) of the class queue contains at most as many tickets of the key as the
key may send now. The other tickets of the key are blocked. Whenever the number of requests that the
key may send changes, tickets are moved between the two parts at once. So every ticket in the line
may be sent, and the code that chooses from the line ignores limits.

Requests of class batch may use only what the key's other requests leave of the limit. A batch
request is blocked while all running requests of the key together reach the limit. Another request
is blocked only while the running requests that are not batch reach the limit.

Requests of the key that run through other routers count, too, and the slots that their waiting
requests will get first (`counts_elsewhere`). While these cannot be known, the limit is divided by
the number of routers (`divide`).

Must never: add work to requests of keys without limits, or depend on the value of the key.
"""

from __future__ import annotations

from abc import abstractmethod
from math import inf
from typing import Final

from mypy_extensions import trait

UNLIMITED: Final = 1 << 60


@trait
class LimitedQueue:
    """A queue of waiting tickets of one API key that has a limit."""

    __slots__ = ()

    @abstractmethod
    def fit(self, now: float) -> None:
        """Block or unblock tickets, because the number of requests that the API key may send has
        changed."""

    @abstractmethod
    def blocked(self) -> tuple[int, float]:
        """Return the number of blocked tickets, and the arrival time of the oldest one; (0,
        infinity): none. Tickets of class batch do not count."""


class Concurrency:
    """Counts the running requests of one API key over all queues. `limit`: `None` means no
    limit."""

    __slots__ = (
        "_parts",
        "_whole",
        "ahead_elsewhere",
        "batch",
        "batch_elsewhere",
        "elsewhere",
        "entered",
        "key_queues",
        "limit",
        "own",
    )

    def __init__(self, limit: int | None) -> None:
        self._whole = UNLIMITED if limit is None else limit
        self._parts = 1
        self.limit = self._whole  # The part of it that this router may use.
        self.own = 0  # Requests at replicas that are not of class batch.
        self.batch = 0  # Batch requests at replicas.
        self.entered = 0  # Batch requests that have arrived and not ended, waiting or running.
        # Requests at replicas that other routers have sent: those not of class batch, and batch.
        self.elsewhere = 0
        self.batch_elsewhere = 0
        # Slots that requests get that have waited longer at other routers.
        self.ahead_elsewhere = 0
        # The class queues that hold tickets of the API key.
        self.key_queues: dict[LimitedQueue, None] = {}

    def adopt(self, limit: int | None, now: float) -> None:
        """Use another limit from now on. Requests that are at replicas are not stopped."""
        self._whole = UNLIMITED if limit is None else limit
        self.divide(self._parts, now)

    def divide(self, parts: int, now: float) -> None:
        """Use one of `parts` equal parts of the limit; at least one request, if the limit allows
        any."""
        self._parts = parts
        self.limit = min(self._whole, max(1, self._whole // parts))
        self._fit(now)

    def counts_elsewhere(self, own: int, batch: int, ahead: int, now: float) -> None:
        """Count these requests of other routers, in place of those that were counted before.

        `ahead`: requests that wait there longer than any one here.
        """
        before = self.elsewhere, self.batch_elsewhere, self.ahead_elsewhere
        if before != (own, batch, ahead):
            self.elsewhere, self.batch_elsewhere, self.ahead_elsewhere = own, batch, ahead
            self._fit(now)

    def blocked(self) -> tuple[int, float]:
        """Return the number of tickets that the limit blocks, and the arrival time of the oldest
        one; (0, infinity): none. Tickets of class batch do not count."""
        count, oldest = 0, inf
        for key_queue in self.key_queues:
            more, arrival = key_queue.blocked()
            count += more
            oldest = min(oldest, arrival)
        return count, oldest

    def free(self, is_batch: bool) -> int:
        """Return how many more requests of the key may be sent now; 0 or less: none."""
        free = self.limit - self.own - self.elsewhere - self.ahead_elsewhere
        return free - self.batch - self.batch_elsewhere if is_batch else free

    def may_pass(self, is_batch: bool) -> bool:
        """Whether a new request may be sent at once: the limit allows it, and no request of the key
        waits."""
        return not self.key_queues and self.free(is_batch) > 0

    def may_enter(self) -> bool:
        """Whether one more batch request may enter the router. Waiting batch requests are counted,
        too. So the batch server keeps its further requests instead of filling the queue with
        them."""
        return self.free(False) > self.entered + self.batch_elsewhere

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
        for key_queue in self.key_queues:
            key_queue.fit(now)
