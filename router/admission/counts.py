"""The queue's counters, as plain numbers. The metrics read them at each scrape.

Must never: be reset, or be written by other code than the queue.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES
from router.core.errors import Reason

# Why a request ended without being sent. A closed set: the words are values of a metric's label.
REFUSALS: Final[tuple[str, ...]] = (  # refused at its arrival, because of the queue's limits
    Reason.QUEUE_FULL,
    Reason.QUEUE_FLOW_FULL,
    Reason.QUEUE_BYTES_FULL,
    Reason.QUEUE_TOO_LONG,
)
EXPIRIES: Final[tuple[str, ...]] = (  # it waited, and its time limit passed
    Reason.QUEUE_TIMEOUT,
    Reason.DEADLINE_PASSED,
    Reason.NO_REPLICA,
)
EVICTED: Final[str] = Reason.QUEUE_EVICTED  # it waited, and a full queue evicted it
GONE: Final[str] = Reason.MODEL_NOT_FOUND  # it waited, and its model was removed from the fleet
LEFT: Final = "left"  # it waited, and its client disconnected or the router stopped
DROPS: Final[tuple[str, ...]] = (*REFUSALS, EVICTED, *EXPIRIES, GONE, LEFT)


class QueueCounts:
    """Totals since the start, by class, 0 critical to 4 batch."""

    __slots__ = (
        "dropped",
        "granted",
        "inverted",
        "passed",
        "preempted",
        "promoted",
        "queued",
        "skipped",
    )

    def __init__(self) -> None:
        self.passed = [0] * CLASSES  # sent without having waited
        self.queued = [0] * CLASSES  # began to wait
        self.granted = [0] * CLASSES  # sent after having waited
        self.inverted = [0] * CLASSES  # granted while a request of a more urgent class waited
        self.dropped = {reason: [0] * CLASSES for reason in DROPS}  # not sent
        self.promoted = [0] * CLASSES  # became starved
        self.preempted = [0] * CLASSES  # put back for a more urgent request
        self.skipped = 0  # places granted to a later ticket of the line

    def add(self, other: QueueCounts) -> None:
        """Add the counts of another queue, which no longer exists."""
        for mine, its in (
            (self.passed, other.passed),
            (self.queued, other.queued),
            (self.granted, other.granted),
            (self.inverted, other.inverted),
            (self.promoted, other.promoted),
            (self.preempted, other.preempted),
            *((self.dropped[reason], other.dropped[reason]) for reason in DROPS),
        ):
            for urgency in range(CLASSES):
                mine[urgency] += its[urgency]
        self.skipped += other.skipped
