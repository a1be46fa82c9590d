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
    """Base of the built-in queues, so that compiled code calls them directly. `TicketQueue`
    describes the methods.
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


@mypyc_attr(allow_interpreted_subclasses=True)
class OrderPolicy:
    """Base of every order policy: a `@dataclass(slots=True)` whose fields are its options.

    Values are checked against the fields' types. `__post_init__` makes further checks and raises
    PolicyConfigError. A field that holds state and is not an option has `init=False`. One policy
    object serves one queue.
    """

    __slots__ = ()

    # True: the policy orders tickets within a class only. False: it compares all classes.
    by_class: ClassVar[bool] = True
    # True: the policy shares service by flow, so further requests of a flow keep their priority.
    is_fair: ClassVar[bool] = False
    # True: the policy orders by arrival alone, so a new ticket goes last in its class queue.
    by_arrival: ClassVar[bool] = False
    # True: the policy may never serve a ticket, so the queue serves starving tickets. False:
    # the queue protects only classes; the policy prevents starvation within a class.
    starves: ClassVar[bool] = True

    def line(self, urgency: int) -> TicketQueue:
        """A new line (an ordered queue) of tickets of class `urgency`, 0 critical to 4 batch."""
        raise NotImplementedError

    def passed(self, ticket: Ticket, now: float) -> None:
        """A ticket was sent without waiting in a line, while other tickets wait."""

    def settled(self, ticket: Ticket, tokens: int, output: int) -> None:
        """A ticket that was taken or passed has ended. Its request cost `tokens` uncached prompt
        tokens and `output` output tokens. Called once for each ticket, also if cancelled.
        """

    def refunded(self, ticket: Ticket) -> None:
        """A ticket that was taken or passed returns to its line: its charge is taken back."""

    def sized(self, replicas: int) -> None:
        """The number of replicas behind the queue has changed."""
