"""Reserves shares of the token capacity of a model pool for classes.

This module counts the tokens (prompt and predicted output) of the requests that were sent and have
not ended, by class.

Rules:
1. The reservation of a class is limited to its highest demand in the last minute: the tokens of its
   running and waiting requests. Tokens of its running requests count as used, not as reserved.
2. A class may always send a request while it uses less than its share. The request may exceed the
   share, so even a request that is larger than the share can be sent.
3. Beyond its share a class may use free capacity, less what is reserved for the other classes. So
   any class can use idle capacity, and freed capacity goes to the class that reserves it.
4. With `strict`, no class may exceed its share.
5. If the capacity is unknown, nothing is limited. The capacity is the sum of the KV caches. If an
   engine does not report the size of its KV cache, the most tokens that ran there while its slots
   or its KV cache were used up are used.

Must never: depend on single tickets, or on which replica has free capacity.
"""

from __future__ import annotations

from math import inf
from typing import Final

from policies.queueing.ticket import CLASSES
from router.admission.rules import Rules

WINDOW_S: Final = 60.0
_PARTS: Final = 6
PART_S: Final = WINDOW_S / _PARTS


class Reservations:
    """The reservations of one queue."""

    __slots__ = (
        "_demands",
        "_parts",
        "_rules",
        "capacity",
        "used",
        "waiting",
    )

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.used = [0] * CLASSES  # Tokens of sent requests that have not ended.
        self.waiting = [0] * CLASSES  # Tokens of waiting requests.
        self.capacity = 0.0  # Token capacity of the pool; 0: unknown.
        # By class: one entry for each part of the window, with the number of the part and the
        # highest sum of running and waiting tokens in this part.
        self._parts: list[list[tuple[int, int]]] = [[] for _ in range(CLASSES)]
        self._demands = [0] * CLASSES

    # -- events -------------------------------------------------------------------------------

    def waits(self, urgency: int, tokens: int, now: float) -> None:
        self.waiting[urgency] += tokens
        self._wanted(urgency, now)

    def left(self, urgency: int, tokens: int) -> None:
        self.waiting[urgency] -= tokens

    def sent(self, urgency: int, tokens: int, now: float) -> None:
        self.used[urgency] += tokens
        self._wanted(urgency, now)

    def ended(self, urgency: int, tokens: int) -> None:
        self.used[urgency] -= tokens

    def recount(self, used: list[int], waiting: list[int]) -> None:
        """Replace the counts of running and waiting tokens of each class. A call of `tick` must
        follow."""
        self.used = used
        self.waiting = waiting
        self._parts = [[] for _ in range(CLASSES)]
        self._demands = [used[urgency] + waiting[urgency] for urgency in range(CLASSES)]

    def _wanted(self, urgency: int, now: float) -> None:
        demand = self.used[urgency] + self.waiting[urgency]
        number = int(now / PART_S)
        parts = self._parts[urgency]
        if parts and parts[-1][0] == number:
            if demand > parts[-1][1]:
                parts[-1] = (number, demand)
        else:
            parts.append((number, demand))
        self._demands[urgency] = max(self._demands[urgency], demand)

    def tick(self, now: float) -> None:
        """Drop demand that is older than the one-minute window, and record the present demand."""
        oldest = int(now / PART_S) - _PARTS
        for urgency in range(CLASSES):
            parts = [part for part in self._parts[urgency] if part[0] >= oldest]
            self._parts[urgency] = parts
            self._demands[urgency] = max((part[1] for part in parts), default=0)
            if self.used[urgency] or self.waiting[urgency]:
                self._wanted(urgency, now)

    def next_at(self, now: float) -> float:
        """Return the next time at which a demand is dropped; infinity: there is no demand."""
        if not any(self._parts):
            return inf
        return (int(now / PART_S) + 1) * PART_S

    # -- queries ------------------------------------------------------------------------------

    def held(self, urgency: int) -> float:
        """Return the tokens that are reserved for the class in addition to those it uses."""
        share = self._rules.classes[urgency].share * self.capacity
        return max(0.0, min(share, float(self._demands[urgency])) - self.used[urgency])

    def allows(self, urgency: int, tokens: int) -> bool:
        """Whether the class may send one more request of `tokens` tokens."""
        capacity = self.capacity
        rules = self._rules
        if not rules.reservations or capacity <= 0.0:
            return True
        if self.used[urgency] < rules.classes[urgency].share * capacity:
            return True
        if rules.reserved_strictly:
            return False
        free = capacity - tokens
        for other in range(CLASSES):
            free -= self.used[other]
            if other != urgency:
                free -= self.held(other)
        return free >= 0.0
