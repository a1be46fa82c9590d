"""The methods of an ordered queue of tickets; `contract.py` has the rules.

`TicketQueue` is a `Protocol`, so a queue may be any Python object. Compiled queues use
`base.BaseLine`.
"""

from __future__ import annotations

from typing import Protocol

from policies.queueing.ticket import Ticket


class TicketQueue(Protocol):
    """Tickets of one class that may go to the same replicas, in the policy's order.

    `now` is monotonic seconds and never goes back.
    """

    def push(self, ticket: Ticket, now: float) -> None:
        """Add a ticket that begins to wait. A ticket that was put back has its old `order`."""

    def drop(self, ticket: Ticket) -> None:
        """Remove a ticket that was not served: its client left, or it expired."""

    def first(self, now: float) -> Ticket | None:
        """Return the ticket that goes next; `None` if the queue is empty."""

    def rank(self, now: float) -> tuple[float, ...]:
        """Return the rank of the first ticket, which is compared with the ranks of other queues of
        this policy. The queue with the lower rank goes first; if ranks are equal, the earlier
        arrival decides. The queue must not be empty.
        """

    def band(self, most: int, now: float) -> list[Ticket]:
        """Return the first ticket and the tickets that may go instead of it without breaking the
        policy's guarantees; at most `most` tickets.
        """

    def within(self, ticket: Ticket, now: float) -> bool:
        """Whether a ticket of the queue may go instead of the first one. This is called for each
        ticket of a recent `band`, so it must be quick.
        """

    def take(self, ticket: Ticket, now: float) -> None:
        """Remove a ticket that is served: a ticket for which `within` is true, or a starving
        ticket."""
