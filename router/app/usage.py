"""What tenants have used, for people and scripts: GET /usage.

Must never: change anything.
"""

from __future__ import annotations

from time import time
from typing import Any

from router.core.urgency import CLASSES
from router.observe.metrics import UNCLASSED
from router.observe.tenant_usage import TenantUsage, Used, together


def described(usage: TenantUsage) -> dict[str, Any]:
    """Everything since the start, by tenant, the one with most tokens first, and by class."""
    totals = usage.totals()
    names = sorted(totals, key=lambda name: -totals[name].prompt - totals[name].output)
    return {
        "since": round(usage.since, 3),  # seconds since 1970
        "seconds": round(time() - usage.since, 3),
        "total": _used(together(totals)),
        "tenants": [
            {
                "tenant": name,
                **_used(totals[name]),
                "classes": {
                    urgency: _used(used)
                    for urgency in (*CLASSES, UNCLASSED)
                    if (used := usage.tenants[name].get(urgency)) is not None
                },
            }
            for name in names
        ],
    }


def _used(used: Used) -> dict[str, Any]:
    return {
        "requests": used.requests,
        "prompt_tokens": used.prompt,  # the cached ones among them
        "cached_tokens": used.cached,
        "output_tokens": used.output,
        "estimated": used.estimated,  # requests whose tokens were not all told by an engine
        "cost": used.cost if used.is_priced else None,
        "unpriced_tokens": used.unpriced,  # that the cost leaves out
    }
