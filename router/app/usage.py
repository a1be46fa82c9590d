"""Reports the usage of tenants, for GET /usage.

Must never: change anything, or block the event loop for long, because streams would be delayed.
"""

from __future__ import annotations

import asyncio
from time import time
from typing import Any, Final

from router.app.budgets import described as described_budgets
from router.core.urgency import CLASSES
from router.dispatch.budgets import Budgets
from router.observe.metrics import UNCLASSED
from router.observe.tenant_usage import TenantUsage, Used, together

# Number of tenants that are reported per turn of the event loop, in less than a millisecond.
_AT_ONCE: Final = 50


async def described(usage: TenantUsage, budgets: Budgets) -> dict[str, Any]:
    """Returns the usage since the start, by tenant (most tokens first) and priority class."""
    total = Used()
    now = time()
    found: list[tuple[int, dict[str, Any]]] = []
    for number, (name, classes) in enumerate([*usage.tenants.items()], 1):
        used = together(classes)
        total.add(used)
        by_class = {
            urgency: _used(classes[urgency])
            for urgency in (*CLASSES, UNCLASSED)
            if urgency in classes
        }
        entry = {"tenant": name, **_used(used), "classes": by_class}
        spending = budgets.limited.get(name)
        if spending is not None:
            entry["budgets"] = described_budgets(spending, now)
        found.append((used.prompt + used.output, entry))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    found.sort(key=_tokens, reverse=True)
    return {
        "since": round(usage.since, 3),  # When counting began, in seconds since 1970.
        "seconds": round(time() - usage.since, 3),
        "total": _used(total),
        "tenants": [entry for _, entry in found],
    }


def _tokens(entry: tuple[int, dict[str, Any]]) -> int:
    return entry[0]


def _used(used: Used) -> dict[str, Any]:
    return {
        "requests": used.requests,
        "prompt_tokens": used.prompt,  # Prompt tokens, including cached prompt tokens.
        "cached_tokens": used.cached,
        "output_tokens": used.output,
        "estimated": used.estimated,  # Requests with at least one estimated token count.
        "cost": used.cost if used.is_priced else None,
        "unpriced_tokens": used.unpriced,  # Tokens without a price, which `cost` does not include.
    }
