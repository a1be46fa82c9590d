"""The queue's counters, as plain numbers. The metrics read them at each scrape.

Must never: be reset, or be written by other code than the queue.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES
from router.core.errors import Reason

# Reasons why a request ended without being sent to a replica. The texts are used as values of a
# label in the metrics.
REFUSALS: Final[tuple[str, ...]] = (  # The request was refused at its arrival.
    Reason.QUEUE_FULL,
    Reason.QUEUE_FLOW_FULL,
    Reason.QUEUE_BYTES_FULL,
    Reason.QUEUE_TOO_LONG,
    Reason.TTFT_UNREACHABLE,
)
EXPIRIES: Final[tuple[str, ...]] = (  # A time limit passed while the request waited.
    Reason.QUEUE_TIMEOUT,
    Reason.DEADLINE_PASSED,
    Reason.NO_REPLICA,
)
EVICTED: Final[str] = Reason.QUEUE_EVICTED  # The waiting request was evicted from a full queue.
# The model of the request was removed from the fleet while it waited.
GONE: Final[str] = Reason.MODEL_NOT_FOUND
LEFT: Final = "left"  # The client disconnected, or the router stopped, while it waited.
AFTER_WAITING: Final[tuple[str, ...]] = (EVICTED, *EXPIRIES, GONE, LEFT)
DROPS: Final[tuple[str, ...]] = (*REFUSALS, *AFTER_WAITING)


class QueueCounts:
    """Totals since the start of the router, by priority class (0 critical to 4 batch)."""

    __slots__ = (
        "dropped",
        "engine_inverted",
        "granted",
        "inverted",
        "passed",
        "preempted",
        "promoted",
        "queued",
        "skipped",
    )

    def __init__(self) -> None:
        self.passed = [0] * CLASSES  # Requests sent without waiting.
        self.queued = [0] * CLASSES  # Requests that began to wait.
        self.granted = [0] * CLASSES  # Requests sent after waiting.
        self.inverted = [0] * CLASSES  # Requests granted while a more urgent class waited.
        # Critical and high requests sent to a replica that has no free slot and on which batch
        # requests run. Only requests with a ticket are counted, and only at replicas whose number
        # of slots is known.
        self.engine_inverted = [0] * CLASSES
        # Requests that ended without being sent, by reason.
        self.dropped = {reason: [0] * CLASSES for reason in DROPS}
        # Requests that were marked as starved, because they had waited too long.
        self.promoted = [0] * CLASSES
        # Requests preempted and queued again for a more urgent request.
        self.preempted = [0] * CLASSES
        # Dispatches for which the first ticket of the class queue was skipped.
        self.skipped = 0

    def arrived_to_be_sent(self) -> list[int]:
        """Return the arrivals by class, without those that began to wait and were not sent.

        Requests that leave soon take no place of other requests. If they counted, a client could
        make the predicted waits of others longer.
        """
        arrived = [self.passed[urgency] + self.queued[urgency] for urgency in range(CLASSES)]
        for reason in AFTER_WAITING:
            for urgency in range(CLASSES):
                arrived[urgency] -= self.dropped[reason][urgency]
        return arrived

    def add(self, other: QueueCounts) -> None:
        """Add the counts of another queue, which no longer exists."""
        for mine, its in (
            (self.passed, other.passed),
            (self.queued, other.queued),
            (self.granted, other.granted),
            (self.inverted, other.inverted),
            (self.engine_inverted, other.engine_inverted),
            (self.promoted, other.promoted),
            (self.preempted, other.preempted),
            *((self.dropped[reason], other.dropped[reason]) for reason in DROPS),
        ):
            for urgency in range(CLASSES):
                mine[urgency] += its[urgency]
        self.skipped += other.skipped
