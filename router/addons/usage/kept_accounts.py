"""The amounts of all tenants, with budgets, and with the usage file if one is configured.

`described`, `families`: reports budgets for GET /usage, and the metrics of budgets and of the usage
file.

Must never: change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from router.addons.usage.budgets import Budgets
from router.addons.usage.pending import Pending
from router.addons.usage.spending import Spending
from router.core.clock import monotonic, time
from router.core.periods import DAY_S, NAMES, day_of, seconds_to_next
from router.core.time_zone import TimeZone
from router.dispatch.accounts import Accounts, Row
from router.dispatch.driver.request_end import class_of
from router.dispatch.ending import refuse
from router.dispatch.exchange import Exchange
from router.dispatch.recurring import Recurring
from router.intake.keys import budget_of_model
from router.observe.families.family import COUNTER, GAUGE, Family, Source
from router.observe.families.request_families import NAMED
from router.observe.tenant_usage import NO_KEY, Used
from router.wire.sweep import Sweeper

if TYPE_CHECKING:
    from router.addons.usage.database import UsageDatabase
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


class KeptAccounts(Accounts):
    """See `Accounts`."""

    def __init__(
        self, budgets: Budgets, pending: Pending, writer: UsageWriter | None, sweeper: Sweeper
    ) -> None:
        self.cuts_spent = False  # `usage.cut_spent`
        self._budgets = budgets
        self._pending = pending
        self._writer = writer
        self._overspending = Recurring(self._cut_spent, sweeper)

    def enter(self, x: Exchange, prompt: int, most: int, answers: int) -> None:
        self._budgets.enter(x, prompt, most, answers)
        if self.cuts_spent:
            self._overspending.watch()

    def release(self, x: Exchange) -> None:
        self._budgets.release(x)

    def record(
        self,
        x: Exchange,
        prompt: int,
        cached: int,
        output: int,
        is_estimate: bool,
        cost: float,
        wall: float,
        now: float,
    ) -> None:
        budgets, key, tenants = self._budgets, x.asked.key, [NO_KEY]
        if key is not None:
            tenants = budgets.charge(x, key, prompt + output, cost, output, wall, now)
        if self._writer is not None:
            day, urgency = budgets.day(wall), class_of(x)
            for tenant in tenants:
                row = self._pending.row(day, tenant, urgency)
                row.count(prompt, cached, output, is_estimate, cost)

    def budgets(self, tenant: str) -> dict[str, Any]:
        budgets, now = self._budgets, time()
        key = budgets.keys.by_name.get(tenant)
        found: dict[str, Any] = {}
        if key is not None and key.budgets:
            found["budgets"] = described(budgets.of(tenant), now, budgets.zone)
        if key is not None and key.model_budgets:
            found["model_budgets"] = {
                model: described(budgets.of(budget_of_model(tenant, model)), now, budgets.zone)
                for model in key.model_budgets
            }
        return found

    async def totals(
        self, first: int, last: int
    ) -> tuple[float | None, dict[str, dict[str, Used]]] | None:
        if self._writer is None:
            return None

        def read(file: UsageDatabase) -> tuple[int | None, dict[str, dict[str, Used]]]:
            return file.first_day(first, last), file.totals(first, last)

        day, totals = await self._writer.read(read)
        if day is None:
            return None, totals
        return day * DAY_S - self._budgets.zone.offset_s(day * DAY_S), totals

    async def rows(
        self, first: int, last: int, encode: Callable[[Iterable[Row]], bytes]
    ) -> bytes | None:
        if self._writer is None:
            return None
        return await self._writer.read(lambda file: encode(file.rows(first, last)))

    def _cut_spent(self, now: float) -> bool:
        """Ends the running requests of keys whose budget is used up (`usage.cut_spent`)."""
        for x, refusal in self._budgets.overspent(time(), now):
            refuse(x, refusal)
        return bool(self._budgets.holds)
