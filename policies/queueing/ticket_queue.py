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
        """A ticket begins to wait. A ticket that was put back has its old `order`."""

    def drop(self, ticket: Ticket) -> None:
        """Remove a ticket that was not served: its client left, or it expired."""

    def first(self, now: float) -> Ticket | None:
        """The ticket that goes next; `None` if the queue is empty."""

    def rank(self, now: float) -> tuple[float, ...]:
        """The rank of the first ticket, to compare with the ranks of other queues of this policy.
        The queue with the lower rank goes first, ties by arrival. The queue must not be empty.
        """

    def band(self, most: int, now: float) -> list[Ticket]:
        """The first ticket and all tickets that may go instead of it without breaking the policy's
        guarantees; at most `most`.
        """

    def within(self, ticket: Ticket, now: float) -> bool:
        """Whether a ticket of the queue may go instead of the first one. Called for each ticket of
        a recent `band`, so the method must be quick.
        """

    def take(self, ticket: Ticket, now: float) -> None:
        """Remove a ticket that is served: a ticket `within`, or a starving ticket."""
