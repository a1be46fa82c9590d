"""What the queue knows of a request at replicas, from its first dispatch until it is settled.

A request that is put back into the queue keeps the object: how long it ran, and how often it gave
way, count on. The queue alone changes it.

Must never: know an attempt; hedges and continuations of a request are the same run.
"""

from __future__ import annotations

from typing import Any


class Run:
    """Of one request. Times are monotonic seconds."""

    __slots__ = (
        "has_shown",
        "is_away",
        "is_charged",
        "is_preempting",
        "place",
        "preemptions",
        "ran_s",
        "sent_at",
    )

    def __init__(self) -> None:
        self.ran_s = 0.0  # at replicas, before it was put back: not a part of its wait
        self.preemptions = 0  # how often it was put back for a more urgent request
        self.is_preempting = False  # it was asked to give way, and is not back yet
        # Of the dispatch under way.
        self.place: Any = None  # the replica; None: it is at none
        self.sent_at = 0.0
        self.is_charged = False  # the order policy has charged it
        self.has_shown = False  # its first content is with its client
        # It has failed there, and is at no replica until it is sent again. It keeps its place,
        # which has its share of what is counted by replica.
        self.is_away = False

    def begin(self, place: object, now: float, is_charged: bool) -> None:
        """It is sent to a replica."""
        self.place = place
        self.sent_at = now
        self.is_charged = is_charged
        self.has_shown = False
        self.is_away = False

    def end(self, now: float) -> None:
        """It is put back into the queue."""
        self.ran_s += now - self.sent_at
        self.place = None
