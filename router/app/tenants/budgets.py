"""Reports budgets for GET /usage, and the metrics of budgets and of the usage file.

Must never: change anything.
"""

from __future__ import annotations

from itertools import islice
from math import isfinite
from time import time
from typing import Any, Final

from router.admission.budget import Spending
from router.app.parts import Parts
from router.core.periods import day_of, month_of, seconds_to_next_day, seconds_to_next_month
from router.observe.families.family import COUNTER, GAUGE, Family
from router.observe.families.tenant_families import NAMED

DAY: Final = "day"
MONTH: Final = "month"


def described(spending: Spending, now: float) -> dict[str, Any]:
    """Returns each budget of a tenant: its limit, the used amount, and when it renews.

    `now`: seconds since 1970.
    """
    renews_at = {
        DAY: round(now + seconds_to_next_day(now)),
        MONTH: round(now + seconds_to_next_month(now)),
    }
    return {
        f"{unit}_per_{period}": {"limit": limit, "used": used, "renews_at": renews_at[period]}
        for unit, period, limit, used in _amounts(spending, now)
    }


def _amounts(spending: Spending, now: float) -> list[tuple[str, str, float, float]]:
    """Returns (unit, period, limit, used) for each budget of a tenant."""
    limits = spending.limits
    if limits is None:
        return []
    number = day_of(now)
    day, month = spending.day(number), spending.month(month_of(number))
    every = [
        ("tokens", DAY, limits.tokens_per_day, day.tokens),
        ("cost", DAY, limits.cost_per_day, day.cost),
        ("tokens", MONTH, limits.tokens_per_month, month.tokens),
        ("cost", MONTH, limits.cost_per_month, month.cost),
    ]
    return [each for each in every if isfinite(each[2])]


def _used_ratios(parts: Parts) -> dict[tuple[str, ...], float]:
    now = time()
    return {
        (name, unit, period): used / limit
        for name, spending in islice(parts.dispatcher.budgets.limited.items(), NAMED)
        for unit, period, limit, used in _amounts(spending, now)
    }


def _store_errors(parts: Parts) -> float | None:
    return None if parts.usage_writer is None else parts.usage_writer.errors


FAMILIES: Final[tuple[Family[Parts], ...]] = (
    Family(
        "tenant_budget_used_ratio",
        GAUGE,
        "Used share of a key's budget (unit: tokens, cost; period: day, month), by the name of the "
        f"key: the first {NAMED} names with a budget. Requests are refused at 1.",
        _used_ratios,
        ("tenant", "unit", "period"),
    ),
    Family(
        "usage_write_errors",
        COUNTER,
        "Failed writes of the usage file, which are repeated.",
        _store_errors,
    ),
)
