"""Wraps the lines of third-party order policies, so that a failing line cannot stop the queue.

If a line raises, or returns a ticket that does not wait in it, the line is not used any more. Its
tickets and later tickets then go in the order of arrival. Without this, one defect of a third-party
policy would stop the queue, and no waiting request would be sent or expire.

Must never: let an exception through, or lose a ticket.
"""

from __future__ import annotations

from math import inf
from typing import Final

from policies.queueing.base import BaseLine, OrderPolicy
from policies.queueing.keyed import KeyedQueue
from policies.queueing.ticket import Ticket
from policies.queueing.ticket_queue import TicketQueue

_KEPT: Final = 16  # maximum number of stored error texts


class Failures:
    """The number of failures of order policies, and their texts until they are reported."""

    __slots__ = ("count", "texts")

    def __init__(self) -> None:
        self.count = 0
        self.texts: list[str] = []  # the first error texts since the last `take`

    def add(self, what: str, err: Exception) -> None:
        self.count += 1
        if len(self.texts) < _KEPT:
            self.texts.append(f"{what}: {err!r}")

    def take(self) -> list[str]:
        texts, self.texts = self.texts, []
        return texts


def line_of(order: OrderPolicy, urgency: int, failures: Failures) -> BaseLine:
    """Return a new line of a policy. The line of a third-party policy is wrapped."""
    line: TicketQueue | None = None
    try:
        line = order.line(urgency)
    except Exception as err:
        failures.add("line", err)
    if isinstance(line, BaseLine) and type(order).__module__.startswith("policies."):
        return line
    return ForeignQueue(line, failures)


class ForeignQueue(BaseLine):
    """A line of a third-party policy."""

    __slots__ = ("_failures", "_instead", "_line", "_tickets")

    def __init__(self, line: TicketQueue | None, failures: Failures) -> None:
        """`line`: the line to wrap; None: the policy failed to create one."""
        self._line = line
        self._failures = failures
        self._tickets: dict[Ticket, None] = {}
        # Used instead of the line after the line has failed.
        self._instead = KeyedQueue(_arrival, inf)

    def push(self, ticket: Ticket, now: float) -> None:
        self._tickets[ticket] = None
        line = self._line
        if line is None:
            self._instead.push(ticket, now)
            return
        try:
            line.push(ticket, now)
        except Exception as err:
            self._give_up("push", err)

    def drop(self, ticket: Ticket) -> None:
        del self._tickets[ticket]
        line = self._line
        if line is None:
            self._instead.drop(ticket)
            return
        try:
            line.drop(ticket)
        except Exception as err:
            self._give_up("drop", err)

    def first(self, now: float) -> Ticket | None:
        line = self._line
        if line is not None:
            try:
                found = line.first(now)
                if found in self._tickets or (found is None and not self._tickets):
                    return found
                raise ValueError(f"{found!r} does not wait in the line")
            except Exception as err:
                self._give_up("first", err)
        return self._instead.first(now)

    def rank(self, now: float) -> tuple[float, ...]:
        line = self._line
        if line is not None:
            try:
                return tuple([float(number) for number in line.rank(now)])
            except Exception as err:
                self._give_up("rank", err)
        return self._instead.rank(now)

    def band(self, most: int, now: float) -> list[Ticket]:
        line = self._line
        if line is not None:
            try:
                found = list(line.band(most, now))
                for ticket in found:
                    if ticket not in self._tickets:
                        raise ValueError(f"{ticket!r} does not wait in the line")
                return found
            except Exception as err:
                self._give_up("band", err)
        return self._instead.band(most, now)

    def within(self, ticket: Ticket, now: float) -> bool:
        line = self._line
        if line is not None:
            try:
                return bool(line.within(ticket, now))
            except Exception as err:
                self._give_up("within", err)
        return self._instead.within(ticket, now)

    def take(self, ticket: Ticket, now: float) -> None:
        del self._tickets[ticket]
        line = self._line
        if line is None:
            self._instead.take(ticket, now)
            return
        try:
            line.take(ticket, now)
        except Exception as err:
            self._give_up("take", err)

    def _give_up(self, what: str, err: Exception) -> None:
        self._failures.add(what, err)
        self._line = None
        for ticket in self._tickets:
            self._instead.push(ticket, 0.0)


def _arrival(ticket: Ticket) -> float:
    return float(ticket.order)
