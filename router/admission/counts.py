"""What the queue has done, as plain numbers: whoever shows them reads them when asked.

Must never: be reset, or be written by anybody but the queue.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES
from router.core.errors import Reason

# How a request ended that was not sent. A closed set: these are the words of a metric's label.
REFUSALS: Final[tuple[str, ...]] = (  # it has not waited: too much did already
    Reason.QUEUE_FULL,
    Reason.QUEUE_FLOW_FULL,
    Reason.QUEUE_BYTES_FULL,
    Reason.QUEUE_TOO_LONG,
)
EXPIRIES: Final[tuple[str, ...]] = (  # it has waited, and its time was over
    Reason.QUEUE_TIMEOUT,
    Reason.DEADLINE_PASSED,
    Reason.NO_REPLICA,
)
EVICTED: Final[str] = Reason.QUEUE_EVICTED  # it waited, and gave way in a full queue
GONE: Final[str] = Reason.MODEL_NOT_FOUND  # it waited, and its model was removed from the fleet
LEFT: Final = "left"  # it waited, and its client went, or the router
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
        self.inverted = [0] * CLASSES  # ... of these, while somebody more urgent waited
        self.dropped = {reason: [0] * CLASSES for reason in DROPS}  # not sent
        self.promoted = [0] * CLASSES  # became starved
        self.preempted = [0] * CLASSES  # put back for somebody more urgent
        self.skipped = 0  # places that went to a later one, for its prefix

    def add(self, other: QueueCounts) -> None:
        """Count what another queue has counted, which is no more."""
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
