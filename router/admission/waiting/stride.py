"""Chooses the next class among competing classes: stride scheduling by weight and age.

Each class has a number, its *pass*. Serving a request adds the cost of the request, divided by the
weight of its class, to the pass of the class. The class with the lowest pass is next. As the oldest
ticket of a class ages, the class's weight approaches that of more urgent classes, at most the
weight of class high. So a class whose tickets wait long gets a larger share, but never all places.

Source: Waldspurger and Weihl, "Stride scheduling", MIT/LCS/TM-528, 1995. When a class has waiting
tickets again, its pass is raised to the lowest pass of the other waiting classes. So the class gets
no extra turns for the time in which it had no tickets.

A class may wait and not be served, because all gates are closed to it. Meanwhile requests of other
classes are sent, also without a wait. The class is then behind, but at most by `LAG`. So later it
gets its share, and no long run of turns.

Several routers may serve the same classes. What another router has served is added to the passes,
and a class that waits at another router waits (`served_elsewhere`, `waits_elsewhere`).

Must never: apply weights to the critical class, which is always first.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.ticket import CLASSES
from router.admission.rules import Rules
from router.core.urgency import HIGH

# The maximum by which a waiting class is behind another class, in tokens divided by weights. If one
# request costs more than half of that, the maximum is twice the cost.
LAG: Final = 4096.0
# The first requests of a class have equal shares in its mean cost. After this number, each request
# has a share of one in this number. `turn_model.py` predicts waits from these means. Less urgent
# classes get what the others leave, so a small error of a mean becomes a large error of their
# waits.
_MANY: Final = 256


class Stride:
    """The passes of all classes of one queue (stride scheduling)."""

    __slots__ = ("_away", "_rules", "_served", "_time", "costs", "own", "passes", "waiting")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.passes = [0.0] * CLASSES
        self.waiting = [0] * CLASSES  # By priority class: the number of tickets that may be served.
        self.own = [0.0] * CLASSES  # By class: what this router alone has added to its pass.
        self._away = [False] * CLASSES  # By class: whether it waits at another router.
        self._time = 0.0  # The lowest pass of the waiting classes when a ticket was last served.
        # By class, the mean cost of the last requests. A class of which no request was served has
        # the cost of the first request of all classes.
        self.costs = [1.0] * CLASSES
        # By class, the served requests, at most `_MANY`; empty: no request was served yet.
        self._served: list[int] = []

    def begins(self, urgency: int) -> None:
        """Count one more waiting ticket of the class."""
        waiting = self.waiting
        count = waiting[urgency] + 1  # Compiled `+=` is slower: it boxes both numbers.
        waiting[urgency] = count
        if count == 1:
            self._begins(urgency, is_first=sum(waiting) == 1 and not any(self._away))

    def _begins(self, urgency: int, *, is_first: bool) -> None:
        """Raise the pass of a class that begins to wait. `is_first`: no other class waits."""
        if is_first:
            # No ticket waited before, so differences between passes are dropped.
            self._time = max(self.passes)
        if self.passes[urgency] < self._time:
            self.passes[urgency] = self._time

    def ends(self, urgency: int) -> None:
        """Count one fewer waiting ticket of the class."""
        self.waiting[urgency] = self.waiting[urgency] - 1

    def serves(self, urgency: int, cost: float, level: float) -> None:
        """Charge the class for a ticket that is served. `level`: the aged level of its oldest
        ticket."""
        if not self._served:
            self._served = [0] * CLASSES
            self.costs = [cost] * CLASSES
        costs, served = self.costs, self._served
        count = min(_MANY, served[urgency] + 1)
        served[urgency] = count
        share = 1.0 / count
        costs[urgency] = costs[urgency] + share * (cost - costs[urgency])
        if urgency < HIGH:
            return
        step = cost / self.weight(level)
        own = self.own
        own[urgency] = own[urgency] + step
        self.served_elsewhere(urgency, step)

    def served_elsewhere(self, urgency: int, step: float) -> None:
        """Add a cost, divided by the weight, to the pass of a class."""
        passes, waiting, away = self.passes, self.waiting, self._away
        lowest = passes[urgency]
        for other in range(HIGH, CLASSES):
            if (waiting[other] or away[other]) and passes[other] < lowest:
                lowest = passes[other]
        if lowest > self._time:
            self._time = lowest
        after = passes[urgency] + step
        passes[urgency] = after
        least = after - max(LAG, 2.0 * step)
        for other in range(HIGH, CLASSES):
            if (waiting[other] or away[other]) and passes[other] < least:
                passes[other] = least

    def waits_elsewhere(self, away: list[bool]) -> None:
        """Note which classes wait at other routers."""
        for urgency in range(CLASSES):
            if away[urgency] and not self._away[urgency] and not self.waiting[urgency]:
                self._begins(urgency, is_first=not (sum(self.waiting) or any(self._away)))
                self._away[urgency] = True
        self._away = away

    def is_behind(self, urgency: int) -> bool:
        """Whether another class was served more than this class, relative to its weight."""
        passes = self.passes
        own = passes[urgency]
        return any(passes[other] > own for other in range(HIGH, CLASSES))

    def weight(self, level: float) -> float:
        """Return the weight of a class whose oldest ticket has this level. Between the levels of
        two classes, the weight is interpolated."""
        classes = self._rules.classes
        lower = int(level)
        if lower >= CLASSES - 1:
            return classes[CLASSES - 1].weight
        if lower < HIGH:
            return classes[HIGH].weight
        part = level - lower
        return classes[lower].weight * (1.0 - part) + classes[lower + 1].weight * part
