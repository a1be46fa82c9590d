"""Reports budgets for GET /usage, and the metrics of budgets and of the usage file.

Must never: change anything.
"""

from __future__ import annotations

from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from router.addons.usage.budgets import Budgets
from router.addons.usage.spending import Spending
from router.core.clock import monotonic, time
from router.core.periods import NAMES, day_of, seconds_to_next
from router.core.time_zone import TimeZone
from router.observe.families.family import COUNTER, GAUGE, Family, Source
from router.observe.families.request_families import NAMED

if TYPE_CHECKING:
    from router.addons.usage.writer import UsageWriter


def described(spending: Spending, now: float, zone: TimeZone) -> dict[str, Any]:
    """Return each budget of a tenant: its limit, the used amount, and when it renews.

    `now`: seconds since 1970.
    """
    local = zone.local(now)
    return {
        f"{unit}_per_{NAMES[kind]}": {
            "limit": limit,
            "used": used,
            "renews_at": round(now + seconds_to_next(kind, local)),
        }
        for unit, kind, limit, used in _amounts(spending, local)
    }


def _amounts(spending: Spending, local: float) -> list[tuple[str, int, float, float]]:
    """Return (unit, kind of period, limit, used) for each budget of a tenant."""
    day, now = day_of(local), monotonic()
    every: list[tuple[str, int, float, float]] = []
    for window in spending.windows:
        tokens, cost = window.used(window.period(day), now)
        every.append(("tokens", window.kind, window.token_limit, tokens))
        every.append(("cost", window.kind, window.cost_limit, cost))
    return [each for each in every if isfinite(each[2])]


def families(budgets: Budgets, writer: UsageWriter | None) -> tuple[Source[Budgets], ...]:
    """Return the metrics of budgets, and of the usage file if there is one."""
    sources = [Source(_OF_BUDGETS, lambda: budgets)]
    if writer is not None:
        errors = "Failed writes of the usage file, which are repeated."
        family: Family[Budgets] = Family(
            "usage_write_errors", COUNTER, errors, lambda _: writer.errors
        )
        sources.append(Source((family,), lambda: budgets))
    return tuple(sources)


def _used_ratios(budgets: Budgets) -> dict[tuple[str, ...], float]:
    local = budgets.zone.local(time())
    return {
        (name, unit, NAMES[kind]): used / limit
        for name in islice(budgets.keys.budgets, NAMED)
        for unit, kind, limit, used in _amounts(budgets.of(name), local)
    }


_OF_BUDGETS: Final[tuple[Family[Budgets], ...]] = (
    Family(
        "tenant_budget_used_ratio",
        GAUGE,
        "Used share of a key's budget (unit: tokens, cost; period: day, week, month), by the name "
        f"of the key: the first {NAMED} names with a budget. Requests are refused at 1.",
        _used_ratios,
        ("tenant", "unit", "period"),
    ),
    Family(
        "budget_unpriced_requests",
        COUNTER,
        "Requests of keys with a budget of money whose model has no price; they cost nothing.",
        lambda budgets: budgets.unpriced,
    ),
)
