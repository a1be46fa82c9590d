"""The methods of a line of tickets; `contract.py` has the rules.

A `Protocol`, so that a line may be any Python object; `base.BaseLine` is for compiled lines.
"""

from __future__ import annotations

from typing import Protocol

from policies.queueing.ticket import Ticket


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
