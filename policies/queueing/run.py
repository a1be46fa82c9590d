"""The queue's record of a request at replicas, from its first dispatch until it is settled.

A request that is put back into the queue keeps the object, so its running time and its number of
preemptions add up. Only the queue changes it.

Must never: record single attempts; hedges and continuations of a request belong to the same run.
"""

from __future__ import annotations

from typing import Any


class Run:
    """The run of one request. Times are monotonic seconds."""

    __slots__ = (
        "has_shown",
        "is_away",
        "is_behind_batch",
        "is_charged",
        "is_preempting",
        "place",
        "preemptions",
        "ran_s",
        "sent_at",
        "since",
    )

    def __init__(self) -> None:
        self.ran_s = 0.0  # time at replicas before the request was put back; not counted as waiting
        self.preemptions = 0  # how often the request was put back for a more urgent request
        # Preemption was requested, and the request is not back in the queue yet.
        self.is_preempting = False
        # The fields below describe the dispatch under way.
        self.place: Any = None  # the replica; `None`: the request is not at a replica
        self.sent_at = 0.0
        # Since when only a slot or its prefill delays the request: the limit of its key has not
        # blocked it, and no attempt of it has failed, since this time.
        self.since = 0.0
        # The request is urgent and had to wait for a slot, while class batch held slots.
        self.is_behind_batch = False
        self.is_charged = False  # the order policy has charged the request
        # The client has its first content, or the request must not be preempted.
        self.has_shown = False
        # The attempt has failed, and the request is at no replica until it is sent again. `place`
        # is kept, because reservations count the request's tokens at that replica.
        self.is_away = False

    def begin(self, place: object, now: float, is_charged: bool, since: float) -> None:
        """The request is sent to a replica. `since`: see the field."""
        self.place = place
        self.sent_at = now
        self.since = since
        self.is_behind_batch = False
        self.is_charged = is_charged
        self.has_shown = False
        self.is_away = False

    def end(self, now: float) -> None:
        """The request is put back into the queue."""
        self.ran_s += now - self.sent_at
        self.place = None
