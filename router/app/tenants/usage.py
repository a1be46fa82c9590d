"""Reports the usage of tenants, for GET /usage.

With `usage.file` the report contains the amounts in the file, of all its days or of the days that
the request states. Without it, or while the file cannot be used, the report contains what this
process has counted since its start; `stored` is then false.

Must never: change anything, or block the event loop for long, because streams would be delayed.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from router.app.parts import Parts
from router.app.tenants.budgets import described as described_budgets
from router.core.clock import time
from router.core.periods import DAY_S, date_of
from router.core.urgency import CLASSES
from router.intake.flow import key_tenant
from router.intake.keys import budget_of_model
from router.observe.admin.actions import Refused
from router.observe.admin.usage_query import FIRST, LAST
from router.observe.metrics import UNCLASSED
from router.observe.tenant_usage import NO_KEY, OTHERS, Used, together

if TYPE_CHECKING:
    from router.app.tenants.usage_database import UsageDatabase

# Number of tenants that are reported per turn of the event loop, in less than a millisecond.
_AT_ONCE: Final = 50
ROWS_MAX: Final = 500_000  # About 40 MB of CSV.
_COLUMNS: Final = (
    *("day", "tenant", "class", "requests", "prompt_tokens", "cached_tokens", "output_tokens"),
    *("estimated", "cost", "unpriced_tokens"),
)
_Totals = dict[str, dict[str, Used]]


async def described(parts: Parts, first: int = FIRST, last: int = LAST) -> dict[str, Any]:
    """Returns the usage by tenant (most tokens first) and priority class.

    `first`, `last`: the days, as days since 1970. Raises Refused.
    """
    budgets = parts.dispatcher.budgets
    hashed = parts.dispatcher.completion.log.salter.name
    since, totals, problem = await _totals(parts, first, last)
    total = Used()
    now = time()
    found: list[tuple[int, dict[str, Any]]] = []
    for number, (name, classes) in enumerate([*totals.items()], 1):
        used = together(classes)
        total.add(used)
        by_class = {
            urgency: _used(classes[urgency])
            for urgency in (*CLASSES, UNCLASSED)
            if urgency in classes
        }
        # The tenant in the access log, until the salt changes at the next start.
        logged = {} if name in (NO_KEY, OTHERS) else {"logged_as": key_tenant(hashed, name)}
        entry = {"tenant": name, **logged, **_used(used), "classes": by_class}
        key = budgets.keys.by_name.get(name)
        if key is not None and key.budgets:
            entry["budgets"] = described_budgets(budgets.of(name), now, budgets.zone)
        if key is not None and key.model_budgets:
            entry["model_budgets"] = {
                model: described_budgets(
                    budgets.of(budget_of_model(name, model)), now, budgets.zone
                )
                for model in key.model_budgets
            }
        found.append((used.prompt + used.output, entry))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    found.sort(key=_tokens, reverse=True)
    return {
        "since": round(since, 3),  # The beginning of the counted time, in seconds since 1970.
        "seconds": round(now - since, 3),
        "stored": problem is None,  # Whether the amounts are those of the usage file.
        **({"problem": problem} if problem else {}),
        "total": _used(total),
        "tenants": [entry for _, entry in found],
    }


async def csv_of(parts: Parts, first: int = FIRST, last: int = LAST) -> bytes:
    """Returns the usage as CSV (RFC 4180), with a row for each day, tenant and class.

    Without the usage file, there is one row for each tenant and class, and its day is empty. Raises
    Refused.
    """
    writer = parts.usage_writer
    if writer is not None:
        try:
            return await writer.read(lambda database: _csv_of_file(database, first, last))
        except OSError as err:
            _refuse_days(first, last, str(err))
    _refuse_days(first, last, "usage.file is not set")
    tenants = parts.metrics.usage.tenants
    return _encoded(
        ("", tenant, urgency, used)
        for tenant, classes in sorted(tenants.items())
        for urgency, used in classes.items()
    )


async def _totals(parts: Parts, first: int, last: int) -> tuple[float, _Totals, str | None]:
    """Returns the time since which is counted, the usage, and why it is not that of the file.

    "": no file is configured. `None`: it is that of the file.
    """
    writer, usage = parts.usage_writer, parts.metrics.usage
    problem = ""
    if writer is not None:
        try:
            day, totals = await writer.read(lambda file: _totals_of_file(file, first, last))
            if day is None:
                return usage.since, totals, None
            return day * DAY_S - parts.dispatcher.budgets.zone.offset_s(day * DAY_S), totals, None
        except OSError as err:
            problem = str(err)
    _refuse_days(first, last, problem or "usage.file is not set")
    return usage.since, usage.tenants, problem


def _refuse_days(first: int, last: int, why: str) -> None:
    if first != FIRST or last != LAST:
        text = f"the usage of single days is not known: {why}"
        raise Refused(HTTPStatus.CONFLICT, "usage_not_stored", text)


# In the thread of the usage writer.


def _totals_of_file(database: UsageDatabase, first: int, last: int) -> tuple[int | None, _Totals]:
    return database.first_day(first, last), database.totals(first, last)


def _csv_of_file(database: UsageDatabase, first: int, last: int) -> bytes:
    rows = islice(database.rows(first, last), ROWS_MAX + 1)
    return _encoded((date_of(day), tenant, urgency, used) for day, tenant, urgency, used in rows)


def _encoded(rows: Iterable[tuple[str, str, str, Used]]) -> bytes:
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(_COLUMNS)
    lines.writerows(_within(rows))
    return text.getvalue().encode()


def _within(rows: Iterable[tuple[str, str, str, Used]]) -> Iterator[tuple[object, ...]]:
    for number, (day, tenant, urgency, used) in enumerate(rows):
        if number == ROWS_MAX:
            text = f"more than {ROWS_MAX} rows; state fewer days with from and to"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_many_rows", text)
        yield day, tenant, urgency, *_used(used).values()


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
