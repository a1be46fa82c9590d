"""When the next tick of a queue is due, and what the driver must do after it."""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import INFINITY, Ticket
from router.core.errors import RouterError
from router.core.replica_load import ReplicaLoad

# Seconds from an event to the next `tick` of the queue, if requests still wait after the event.
SOON_S: Final = 0.1


class Due:
    """When the next tick of one queue is due."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = INFINITY  # The latest time of the next `tick`; infinity: no ticket waits.

    def by(self, at: float) -> None:
        """Let the next tick come at this time or earlier."""
        self.at = min(self.at, at)


class Expired:
    """A ticket that left the queue without a replica, and the error for its client."""

    __slots__ = ("error", "ticket")

    def __init__(self, ticket: Ticket, error: RouterError) -> None:
        self.ticket = ticket
        self.error = error


class Ticked:
    """The actions that the driver must take after a tick, in this order."""

    __slots__ = ("error", "expired", "granted", "next_at", "polls", "preempt")

    def __init__(self) -> None:
        # Granted tickets: the driver sends each to its `place`, as after `freed`.
        self.granted: list[Ticket] = []
        self.expired: list[Expired] = []  # Expired tickets: the driver answers their clients.
        # Tickets to preempt: the driver cancels each at its `place`, then calls `requeue` or
        # `Queue.runs.settle`.
        self.preempt: list[Ticket] = []
        # Replicas to poll now, because a waiting request may fit there.
        self.polls: list[ReplicaLoad] = []
        self.next_at = INFINITY  # When the next tick is due; infinity: no ticket waits.
        # The exception that has ended the tick early. The driver still takes the actions above,
        # because their tickets are in no queue any more.
        self.error: Exception | None = None
