"""Ends the running requests of keys whose budget is used up (`usage.cut_spent`).

The used amounts are compared once a second, while requests hold a part of a budget.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from router.core.clock import monotonic, time
from router.dispatch.budgets import Budgets
from router.dispatch.exchange import Exchange
from router.wire.sweep import NEVER, Sweeper

_EVERY_S: Final = 1.0


class Cutter:
    """Compares the amounts of running requests with budgets; a party of the sweeper."""

    def __init__(self, exchanges: Collection[Exchange], budgets: Budgets, sweeper: Sweeper) -> None:
        self.deadline = NEVER
        self._exchanges = exchanges
        self._budgets = budgets
        self._sweeper = sweeper

    def watch(self) -> None:
        """Begin to compare, because a request holds a part of a budget."""
        if self.deadline == NEVER:
            self.deadline = monotonic() + _EVERY_S
            self._sweeper.add(self)

    def on_deadline(self, now: float) -> None:
        held = [x for x in self._exchanges if x.budget_hold is not None]
        if held:
            self.deadline = now + _EVERY_S
        else:
            self.deadline = NEVER
            self._sweeper.discard(self)
        for x, refusal in self._budgets.overspent(held, time(), now):
            x.refuse(refusal)
