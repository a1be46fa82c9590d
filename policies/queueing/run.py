"""The queue's record of a request at replicas, from its first dispatch until it is settled.

A request that is put back into the queue keeps its `Run`, so its running times and its preemptions
add up. Only the queue changes a `Run`.

Must never: record single attempts; hedges and continuations of a request belong to the same run.
"""

from __future__ import annotations

from typing import Any


class Run:
    """The record of one request at replicas. Times are monotonic seconds."""

    __slots__ = (
        "has_shown",
        "is_away",
        "is_behind_batch",
        "is_charged",
        "place",
        "preemptions",
        "ran_s",
        "sent_at",
        "since",
    )

    def __init__(self) -> None:
        # The seconds at replicas before the request was put back. They do not count as waiting
        # time.
        self.ran_s = 0.0
        self.preemptions = 0  # how often the request was put back for a more urgent request
        # The fields below describe the current dispatch.
        self.place: Any = None  # the replica; `None`: the request is not at a replica
        self.sent_at = 0.0
        # The time since which the request waits only for a free slot of a replica or for its own
        # prefill. Since then, the limit of its API key has not blocked the request, and no attempt
        # has failed.
        self.since = 0.0
        # The request is critical or high and had to wait for a slot while batch requests held
        # slots.
        self.is_behind_batch = False
        self.is_charged = False  # the order policy has charged the request
        # The client has its first content, or the request must not be preempted.
        self.has_shown = False
        # The attempt has failed, and the request is at no replica until it is sent again. `place`
        # is kept.
        self.is_away = False

    def begin(self, place: object, now: float, is_charged: bool, since: float) -> None:
        """Note that the request is sent to a replica. `since`: see the field `since`."""
        self.place = place
        self.sent_at = now
        self.since = since
        self.is_behind_batch = False
        self.is_charged = is_charged
        self.has_shown = False
        self.is_away = False

    def end(self, now: float) -> None:
        """Note that the request is put back into the queue."""
        self.ran_s += now - self.sent_at
        self.place = None
