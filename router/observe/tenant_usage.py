"""Counts the usage of each tenant since the start: requests, tokens and cost, by priority class.

A tenant is all API keys with the same name. Requests without a known key are counted as one tenant.
The cost is computed with the prices in force when a request ends.

/metrics returns the sum over the classes for each tenant. GET /usage returns all counters, or with
`usage.file` the amounts in the file. For the file, the amounts since the last write are collected
by day, tenant and class.

Must never: be reset, or store more than TENANTS_MAX names (a megabyte). Further tenants are counted
together. No name is removed for them, because a counter that begins again would decrease. While the
file cannot be written, amounts of at most PENDING_MAX rows are collected by tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.core.clock import time
from router.observe.prices import Prices

# The tenant of requests without a known key. No key has this name, because the name of a key cannot
# contain a parenthesis (config/keys.py).
NO_KEY: Final = "(none)"
OTHERS: Final = "(other)"
TENANTS_MAX: Final = 1000
PENDING_MAX: Final = 100_000  # about 30 MB
# The attributes of `Used`.
FIGURES: Final = ("requests", "prompt", "cached", "output", "estimated", "unpriced", "cost")


class Used:
    """The usage of one tenant in one priority class."""

    __slots__ = ("cached", "cost", "estimated", "output", "prompt", "requests", "unpriced")

    def __init__(self) -> None:
        self.requests = 0  # requests that ended, with any outcome
        self.prompt = 0  # prompt tokens, including cached prompt tokens
        self.cached = 0
        self.output = 0
        self.estimated = 0  # requests for which at least one token count is an estimate
        self.unpriced = 0  # tokens of models that have no price
        self.cost = 0.0  # cost of all tokens that have a price

    def count(self, prompt: int, cached: int, output: int, is_estimate: bool, cost: float) -> None:
        """Counts one request. `cost`: below 0 if its tokens have no price."""
        self.requests += 1
        self.prompt += prompt
        self.cached += cached
        self.output += output
        if is_estimate:
            self.estimated += 1
        if cost < 0.0:
            self.unpriced += prompt + output
        else:
            self.cost += cost

    def add(self, other: Used) -> None:
        self.requests += other.requests
        self.prompt += other.prompt
        self.cached += other.cached
        self.output += other.output
        self.estimated += other.estimated
        self.unpriced += other.unpriced
        self.cost += other.cost

    @property
    def is_priced(self) -> bool:
        """Whether at least one of the tokens has a price, so that the cost is meaningful."""
        return self.prompt + self.output > self.unpriced


# Amounts by day, tenant and class.
Pending = dict[tuple[int, str, str], Used]


class TenantUsage:
    """The usage of all tenants of one router."""

    __slots__ = ("_pending", "_prices", "is_stored", "since", "tenants")

    def __init__(self) -> None:
        self.since = time()  # when counting began, in seconds since 1970
        self.tenants: dict[str, dict[str, Used]] = {}  # usage by tenant, then by class
        self._prices = Prices({})
        self.is_stored = False  # Whether amounts are collected for the usage file.
        self._pending: Pending = {}

    def adopt(self, prices: Prices) -> None:
        """Sets the prices, for requests that end later."""
        self._prices = prices

    def count(
        self,
        tenant: str,
        urgency: str,
        model: str | None,
        prompt: int,
        cached: int,
        output: int,
        is_estimate: bool,
        day: int,
    ) -> float:
        """Counts one request that has ended. Its token counts are 0 if it used no tokens.

        `day`: the day on which it ended (`core/periods.py`). Returns the cost of the tokens; below
        0 if they have no price.
        """
        classes = self.tenants.get(tenant)
        if classes is None:
            classes = self._come(tenant)
        used = classes.get(urgency)
        if used is None:
            used = classes[urgency] = Used()
        cost = self._prices.cost_of(model, urgency, prompt, cached, output)
        used.count(prompt, cached, output, is_estimate, cost)
        self.store(day, tenant, urgency, prompt, cached, output, is_estimate, cost)
        return cost

    def store(
        self,
        day: int,
        tenant: str,
        urgency: str,
        prompt: int,
        cached: int,
        output: int,
        is_estimate: bool,
        cost: float,
    ) -> None:
        """Collects the amounts of a request for the usage file.

        `tenant`: also the name of a budget for one model, whose rows no report contains.
        """
        if self.is_stored:
            row = self._row(day, tenant, urgency)
            row.count(prompt, cached, output, is_estimate, cost)

    def take_pending(self) -> Pending:
        """Returns the amounts since the last call, and begins to collect anew."""
        pending, self._pending = self._pending, {}
        return pending

    def give_back(self, pending: Pending) -> None:
        """Collects amounts again that could not be written."""
        for (day, tenant, urgency), used in pending.items():
            self._row(day, tenant, urgency).add(used)

    def _row(self, day: int, tenant: str, urgency: str) -> Used:
        row = self._pending.get((day, tenant, urgency))
        if row is None:
            if len(self._pending) >= PENDING_MAX:
                tenant = OTHERS
            row = self._pending.setdefault((day, tenant, urgency), Used())
        return row

    def _come(self, tenant: str) -> dict[str, Used]:
        """Adds a tenant and returns its usage by priority class, which is empty."""
        if len(self.tenants) >= TENANTS_MAX and tenant != NO_KEY:
            tenant = OTHERS
        return self.tenants.setdefault(tenant, {})


def together(classes: Mapping[str, Used]) -> Used:
    """Returns the usage of a tenant, summed over all priority classes."""
    found = Used()
    for used in classes.values():
        found.add(used)
    return found
