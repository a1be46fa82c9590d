"""What the queue has done, as plain numbers: whoever shows them reads them when asked.

Must never: be reset, or be written by anybody but the queue.
"""

from __future__ import annotations

from policies.queueing.ticket import CLASSES


class QueueCounts:
    """Totals since the start, by class, 0 critical to 4 batch."""

    __slots__ = (
        "expired",
        "full",
        "granted",
        "inverted",
        "left",
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
        self.expired = [0] * CLASSES  # their time was over while they waited
        self.left = [0] * CLASSES  # their clients went while they waited
        self.full = [0] * CLASSES  # refused, because too much waited
        self.promoted = [0] * CLASSES  # became starved
        self.preempted = [0] * CLASSES  # put back for somebody more urgent
        self.skipped = 0  # places that went to a later one, for its prefix
