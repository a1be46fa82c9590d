"""What tenants have used, as Prometheus families: one series a tenant and figure, classes summed.

In which class it was, and of more tenants, GET /usage tells: /metrics is asked every few seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from router.observe.tenant_usage import OTHERS, TenantUsage, Used, together

NAMED: Final = 200  # tenants with series of their own: those that came first, so that they stay


def tenant_families(usage: TenantUsage) -> Iterator[Metric]:
    found = _named(usage)
    requests = CounterMetricFamily(
        "hedgerow_tenant_requests",
        f"Requests that would generate, by the name of their key: the first {NAMED} names.",
        labels=("tenant",),
    )
    for name, used in found.items():
        requests.add_metric((name,), used.requests)
    yield requests
    tokens = CounterMetricFamily(
        "hedgerow_tenant_tokens",
        "Tokens used, by the name of the key and kind; cached ones are prompt tokens too.",
        labels=("tenant", "kind"),
    )
    for name, used in found.items():
        tokens.add_metric((name, "prompt"), used.prompt)
        tokens.add_metric((name, "output"), used.output)
        tokens.add_metric((name, "cached"), used.cached)
    yield tokens
    cost = CounterMetricFamily(
        "hedgerow_tenant_cost",
        "What these tokens cost by `usage.prices`, by the name of the key.",
        labels=("tenant",),
    )
    for name, used in found.items():
        if used.is_priced:
            cost.add_metric((name,), used.cost)
    yield cost


def _named(usage: TenantUsage) -> dict[str, Used]:
    """By name; all that have none here are one."""
    tenants = usage.tenants
    found = {name: together(tenants[name]) for name in islice(tenants, NAMED)}
    for name in islice(tenants, NAMED, None):
        others = found.setdefault(OTHERS, Used())
        for used in tenants[name].values():
            others.add(used)
    return found
