"""Declares the usage of tenants as Prometheus metrics, summed over all priority classes.

/metrics is read every few seconds, so it must not have too many time series. GET /usage returns the
usage of more tenants, and of each tenant by class.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from router.observe.families.family import COUNTER, Family
from router.observe.tenant_usage import OTHERS, TenantUsage, Used, together

# The number of tenants with their own time series. They are the first tenants that sent a request,
# so that the set of series does not change.
NAMED: Final = 200


def named(usage: TenantUsage) -> dict[str, Used]:
    """Return the usage by tenant. All tenants without their own time series are summed."""
    tenants = usage.tenants
    found = {name: together(tenants[name]) for name in islice(tenants, NAMED)}
    for name in islice(tenants, NAMED, None):
        others = found.setdefault(OTHERS, Used())
        for used in tenants[name].values():
            others.add(used)
    return found


def _tokens(tenants: dict[str, Used]) -> dict[tuple[str, ...], float]:
    return {
        (name, kind): number
        for name, used in tenants.items()
        for kind, number in (
            ("prompt", used.prompt),
            ("output", used.output),
            ("cached", used.cached),
        )
    }


FAMILIES: Final[tuple[Family[dict[str, Used]], ...]] = (
    Family(
        "tenant_requests",
        COUNTER,
        f"Generation requests, by the name of their key: the first {NAMED} names.",
        lambda tenants: {name: used.requests for name, used in tenants.items()},
        ("tenant",),
    ),
    Family(
        "tenant_tokens",
        COUNTER,
        "Tokens used, by the name of the key and kind; cached ones are also prompt tokens.",
        _tokens,
        ("tenant", "kind"),
    ),
    Family(
        "tenant_cost",
        COUNTER,
        "Cost of the tokens by `usage.prices`, by the name of the key.",
        lambda tenants: {name: used.cost for name, used in tenants.items() if used.is_priced},
        ("tenant",),
    ),
)
