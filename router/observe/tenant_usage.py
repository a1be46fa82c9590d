"""Counts the usage of each tenant since the start: requests, tokens and cost, by priority class.

A tenant is all API keys with the same name. Requests without a known key are counted as one tenant.
The cost is computed with the prices in force when a request ends.

/metrics returns the sum over the classes for each tenant. GET /usage returns all counters, or with
`usage.file` the amounts in the file.

Must never: be reset, or store more than TENANTS_MAX names (a megabyte). Further tenants are counted
together. No name is removed for them, because a counter that begins again would decrease.
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


class TenantUsage:
    """The usage of all tenants of one router."""

    __slots__ = ("prices", "since", "tenants")

    def __init__(self) -> None:
        self.since = time()  # when counting began, in seconds since 1970
        self.tenants: dict[str, dict[str, Used]] = {}  # usage by tenant, then by class
        self.prices = Prices({})  # For requests that end later; a reload replaces them.

    def count(
        self,
        tenant: str,
        urgency: str,
        model: str | None,
        prompt: int,
        cached: int,
        output: int,
        is_estimate: bool,
    ) -> float:
        """Counts one request that has ended. Its token counts are 0 if it used no tokens.

        Returns the cost of the tokens; below 0 if they have no price.
        """
        classes = self.tenants.get(tenant)
        if classes is None:
            classes = self._come(tenant)
        used = classes.get(urgency)
        if used is None:
            used = classes[urgency] = Used()
        cost = self.prices.cost_of(model, urgency, prompt, cached, output)
        used.count(prompt, cached, output, is_estimate, cost)
        return cost

    def _come(self, tenant: str) -> dict[str, Used]:
        """Adds a tenant and returns its usage by priority class, which is empty."""
        if len(self.tenants) >= TENANTS_MAX and tenant != NO_KEY:
            tenant = OTHERS
        return self.tenants.setdefault(tenant, {})


def together(classes: Mapping[str, Used]) -> Used:
    """Return the usage of a tenant, summed over all priority classes."""
    found = Used()
    for used in classes.values():
        found.add(used)
    return found
