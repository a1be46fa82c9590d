"""Checks the budget of a request's key, and charges the tenant when the request has ended.

There is one `Spending` for each name of a key that was used or that has a budget, so a budget that
a reload adds counts what its tenant used before. A key is charged what GET /usage counts for it.

Must never: answer a client, or charge a request twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Final

from router.admission.budget import HELD, WITHIN, BudgetLimits, Hold, Spending
from router.core.errors import Reason, RouterError
from router.dispatch.driver.request_end import class_of
from router.dispatch.exchange import Exchange
from router.intake.keys import Key
from router.observe.prices import Prices

_HELD: Final = "running requests hold the rest of this key's budget; try again when one has ended"


def spendings(keys: Iterable[Key]) -> dict[str, Spending]:
    """Return a new `Spending` for each key with a budget, by name. A thread may call this."""
    found: dict[str, Spending] = {}
    for key in keys:
        if key.has_budget:
            found[key.name] = spending = Spending()
            spending.limits = BudgetLimits(
                key.tokens_per_day, key.tokens_per_month, key.cost_per_day, key.cost_per_month
            )
    return found


class Budgets:
    """The budgets of all tenants of one router."""

    __slots__ = ("_prices", "by_tenant", "limited")

    def __init__(self) -> None:
        self._prices = Prices({})
        self.by_tenant: dict[str, Spending] = {}
        self.limited: dict[str, Spending] = {}  # The tenants that have a budget.

    def adopt(self, fresh: dict[str, Spending], prices: Prices) -> None:
        """Apply new prices, and the budgets in `fresh` (`spendings`). Used amounts stay counted."""
        self._prices = prices
        for spending in self.limited.values():
            spending.limits = None
        self.limited = {}
        for name, new in fresh.items():
            known = self.by_tenant.get(name)
            if known is None:
                self.by_tenant[name] = known = new
            else:
                known.limits = new.limits
            self.limited[name] = known

    def enter(self, x: Exchange, prompt: int) -> Hold | None:
        """Hold the expected amount of a request; `None`: its key has no budget.

        `prompt`: the estimated prompt tokens. Raises RouterError (INSUFFICIENT_QUOTA,
        KEY_BUDGET_HELD).
        """
        asked = x.asked
        key = asked.key
        if key is None or not key.has_budget:
            return None
        spending = self._of(key.name)
        output = spending.expected_output(asked.most_output_of_all())
        tokens = float(prompt + output)
        model = x.priced_model()
        cost = max(0.0, self._prices.cost_of(model, class_of(x), prompt, 0, output))
        verdict = spending.ask(tokens, cost, asked.arrived_wall)
        if verdict == WITHIN:
            return Hold(spending, tokens, cost)
        wait_s = max(1, ceil(spending.wait_s))
        if verdict == HELD:
            raise RouterError(Reason.KEY_BUDGET_HELD, _HELD, retry_after_s=wait_s)
        words = f"this key has used up its budget ({spending.what}, which renews in UTC)"
        raise RouterError(Reason.INSUFFICIENT_QUOTA, words, retry_after_s=wait_s)

    def charge(self, tenant: str, tokens: int, cost: float, output: int, wall: float) -> None:
        """Charge what a request of a known key used. `tokens` includes `output`."""
        self._of(tenant).charge(tokens, cost, output, wall)

    @property
    def holds(self) -> int:
        """The number of running requests that hold a part of a budget."""
        return sum(spending.holds for spending in self.by_tenant.values())

    def _of(self, tenant: str) -> Spending:
        found = self.by_tenant.get(tenant)
        if found is None:
            found = self.by_tenant[tenant] = Spending()
        return found
