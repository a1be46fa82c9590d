"""The bases of order policies and of their lines; `contract.py` has the rules and the registry.

This is a separate module because it is compiled together with the queue, which calls both for every
request.
"""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import mypyc_attr

from policies.queueing.line import Line
from policies.queueing.ticket import Ticket


@mypyc_attr(allow_interpreted_subclasses=True)
class BaseLine:
    """Base of the built-in lines, so that compiled code calls them directly. `Line` describes the
    methods."""

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

    Values are checked against the fields' types; what a type cannot say, `__post_init__` refuses
    with a PolicyConfigError. State that is no option is a field with `init=False`. One object
    serves one queue.
    """

    __slots__ = ()

    # Whether it orders within a class only. One that does not compares lines of all classes.
    by_class: ClassVar[bool] = True
    # Whether it shares by flow: then a flow's further requests need not step back by themselves.
    is_fair: ClassVar[bool] = False
    # Whether a line goes by arrival alone, so that its length is how many go before the next.
    by_arrival: ClassVar[bool] = False
    # Whether it may pass somebody over for ever: the queue then looks after each ticket. If not, it
    # looks only after classes, and what is fair within one is the policy's.
    starves: ClassVar[bool] = True

    def line(self, urgency: int) -> Line:
        """A new line of tickets of this class, 0 critical to 4 batch."""
        raise NotImplementedError

    def passed(self, ticket: Ticket, now: float) -> None:
        """It was sent without having waited in a line while others wait in theirs."""

    def settled(self, ticket: Ticket, tokens: int, output: int) -> None:
        """One that was taken, or passed, is over: it really cost `tokens` uncached prompt tokens
        and `output` ones. Once for each, also for one that was cancelled."""

    def refunded(self, ticket: Ticket) -> None:
        """One that was taken, or passed, comes back to its line: it cost nothing."""

    def sized(self, replicas: int) -> None:
        """So many replicas serve what is in the lines."""
