"""The contract between an order policy and the queue that drives it.

An order policy says who goes first among those that wait. It is synchronous and deterministic, does
no I/O, knows no clock (`now` is passed in) and no replica. The queue (router/admission) decides
everything else: whether a replica has a place, which class may have it, whose turn a starved class
is, and which of the first few it gives the place to because of what is cached there.

A policy makes *lines*. A line holds tickets of one class that may go to the same replicas; the
queue has several where there are several classes or models, and asks each only for places that its
tickets may have, so that one that is held up holds up nobody else. What is to be fair across lines
(what a tenant was charged) belongs to the policy and is shared by its lines.

The rules, held by one suite over every registered policy:
- every ticket that was pushed comes out once: by `take`, or by `drop` wherever it stands;
- `first` is not None while a line holds somebody, and looking (`first`, `rank`, `band`, `within`)
  changes no order: asked twice at one moment, the answer is the same;
- `band` begins with `first` and holds only tickets of the line, each once and each `within`;
- the same calls give the same order: nothing is drawn, nothing depends on hashing;
- tickets that differ in nothing but their arrival go in the order of their arrival;
- `push`, `drop` and `take` cost O(log n); what is kept stays bounded when 10,000 flows come and go.

Third parties register theirs through the entry-point group `hedgerow.queueing`. Lines are asked by
duck typing, so that they may be plain Python beside the compiled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from policies.queueing.ticket import Ticket
from policies.registry import PolicyConfigError as PolicyConfigError
from policies.registry import Registry


class Line(Protocol):
    """Tickets of one class that may go to the same replicas, in the policy's order.

    `now` is monotonic seconds and never goes back.
    """

    def push(self, ticket: Ticket, now: float) -> None:
        """It waits from now on, or again: one that was put back has its old `order`."""

    def drop(self, ticket: Ticket) -> None:
        """It waits no longer, and was not served: it left, or its time is over."""

    def first(self, now: float) -> Ticket | None:
        """Who goes next; None of nobody."""

    def rank(self, now: float) -> tuple[float, ...]:
        """Of the first, to compare with the first of other lines of this policy: lower goes first,
        ties by arrival. There has to be one."""

    def band(self, most: int, now: float) -> list[Ticket]:
        """The first and those, at most `most` in all, any of which may go in its place without
        breaking what the policy promises."""

    def within(self, ticket: Ticket, now: float) -> bool:
        """Whether one that waits in the line might go in the first's place, however many others
        might: asked of what stood in a `band` a moment ago, so quick."""

    def take(self, ticket: Ticket, now: float) -> None:
        """It is served: one that is `within`, or that the queue put first because it starved."""


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


QUEUEING: Registry[OrderPolicy] = Registry("queueing", "policies.queueing", "hedgerow.queueing")
P = TypeVar("P", bound=type[OrderPolicy])


def order_policy(name: str) -> Callable[[P], P]:
    """Register an order policy class under `name`; stands above `@dataclass(slots=True)`."""
    return QUEUEING.register(name)


def order_names() -> list[str]:
    """Names to ask `make_order` for, sorted."""
    return QUEUEING.names()


def make_order(name: str, options: Mapping[str, Any] | None = None) -> OrderPolicy:
    """Build a policy from its name and options (a mapping as it stands in the configuration).

    Raises PolicyConfigError for an unknown name, an unknown option or a bad value.
    """
    return QUEUEING.make(name, options)
