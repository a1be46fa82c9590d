"""What tenants have used, as Prometheus families: one series a tenant and figure, classes summed.

In which class it was GET /usage tells: by class there would be five times as many series.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from router.observe.tenant_usage import TenantUsage


def tenant_families(usage: TenantUsage) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "hedgerow_tenant_requests",
        "Requests that would generate, by the name of their key; the first thousand names.",
        labels=("tenant",),
    )
    tokens = CounterMetricFamily(
        "hedgerow_tenant_tokens",
        "Tokens used, by the name of the key and kind; cached ones are prompt tokens too.",
        labels=("tenant", "kind"),
    )
    cost = CounterMetricFamily(
        "hedgerow_tenant_cost",
        "What these tokens cost by `usage.prices`, by the name of the key.",
        labels=("tenant",),
    )
    for name, used in usage.totals().items():
        requests.add_metric((name,), used.requests)
        tokens.add_metric((name, "prompt"), used.prompt)
        tokens.add_metric((name, "output"), used.output)
        tokens.add_metric((name, "cached"), used.cached)
        if used.is_priced:
            cost.add_metric((name,), used.cost)
    yield requests
    yield tokens
    yield cost
