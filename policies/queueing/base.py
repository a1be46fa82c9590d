"""The bases of order policies and of their lines (class queues); `contract.py` has the rules and
the registry.

This is a separate module because it is compiled together with the queue, which calls policies and
lines for every request.
"""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import mypyc_attr

from policies.queueing.ticket import Ticket
from policies.queueing.ticket_queue import TicketQueue


@mypyc_attr(allow_interpreted_subclasses=True)
class BaseLine:
    """The base class of the built-in queues, so that compiled code calls their methods directly.
    `TicketQueue` describes the methods.
    """

    __slots__ = ()

    def push(self, ticket: Ticket, now: float) -> None:
        raise NotImplementedError

    def drop(self, ticket: Ticket) -> None:
        raise NotImplementedError

    def first(self, now: float) -> Ticket | None:
        raise NotImplementedError

    def rank(self, now: float) -> tuple[float, ...]:
        raise NotImplementedError

    def band(self, most: int, now: float) -> list[Ticket]:
        raise NotImplementedError

    def within(self, ticket: Ticket, now: float) -> bool:
        raise NotImplementedError

    def take(self, ticket: Ticket, now: float) -> None:
        raise NotImplementedError

    def is_lost(self, ticket: Ticket, now: float) -> bool:
        """Whether a ticket of the queue is so late that it goes after all tickets that are not.

        A lost ticket gains little wherever it is sent. So the queue sends lost tickets only to
        replicas that the routing policy does not keep for requests in time, with few exceptions.
        """
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class OrderPolicy:
    """The base class of every order policy: a `@dataclass(slots=True)` whose fields are its
    options.

    Values are checked against the fields' types. `__post_init__` makes further checks and raises
    PolicyConfigError. A field that holds state and is not an option has `init=False`. One policy
    object serves one queue.
    """

    __slots__ = ()

    # True: the policy orders the tickets of each class separately. False: it compares all classes.
    by_class: ClassVar[bool] = True
    # True: the policy shares service by flow (key and user), so further requests keep their
    # priority.
    is_fair: ClassVar[bool] = False
    # True: the policy orders by arrival alone, so a new ticket goes last in its class queue.
    by_arrival: ClassVar[bool] = False
    # True: the policy may skip a ticket for ever, so the queue serves tickets that starve. False:
    # the policy prevents starvation within a class; the queue prevents only the starvation of
    # classes.
    starves: ClassVar[bool] = True

    def line(self, urgency: int) -> TicketQueue:
        """Return a new line (an ordered queue) for tickets of class `urgency`, 0 critical to 4
        batch."""
        raise NotImplementedError

    def passed(self, ticket: Ticket, now: float) -> None:
        """Note that a ticket was sent without waiting in a line, while other tickets wait."""

    def settled(self, ticket: Ticket, tokens: int, output: int) -> None:
        """Note that a ticket that was sent (`take` or `passed`) has ended. Its request cost
        `tokens` uncached prompt tokens and `output` output tokens. This is called once for each
        such ticket, even if its request was cancelled.
        """

    def refunded(self, ticket: Ticket) -> None:
        """Note that a sent ticket returns to its line; take its charge back."""

    def yields(self, ticket: Ticket) -> bool:
        """Whether a request of the same class that waits at another router goes before a ticket."""
        return False

    def sized(self, replicas: int) -> None:
        """Note that the number of replicas behind the queue has changed."""
