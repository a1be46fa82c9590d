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
from typing import Any, Final

from router.app.parts import Parts
from router.core.clock import time
from router.core.periods import date_of
from router.core.urgency import CLASSES
from router.dispatch.accounts import Row
from router.intake.flow import key_tenant
from router.observe.admin.actions import FIRST, LAST, Refused
from router.observe.metrics import UNCLASSED
from router.observe.tenant_usage import NO_KEY, OTHERS, Used, together

# Number of tenants that are reported per turn of the event loop, in less than a millisecond.
_AT_ONCE: Final = 50
ROWS_MAX: Final = 500_000  # About 40 MB of CSV.
_COLUMNS: Final = (
    *("day", "tenant", "class", "requests", "prompt_tokens", "cached_tokens", "output_tokens"),
    *("estimated", "cost", "unpriced_tokens"),
)
_NO_FILE: Final = "usage.file is not set"
_Totals = dict[str, dict[str, Used]]


def has_file(parts: Parts) -> bool:
    """Whether the amounts of all processes are in one file."""
    return parts.dispatcher.completion.accounts is not None


async def described(parts: Parts, first: int = FIRST, last: int = LAST) -> dict[str, Any]:
    """Return the usage by tenant (most tokens first) and priority class.

    `first`, `last`: the days, as days since 1970. Raises Refused.
    """
    completion = parts.dispatcher.completion
    hashed, accounts = completion.log.salter.name, completion.accounts
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
        if accounts is not None:
            entry.update(accounts.budgets(name))
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
    """Return the usage as CSV (RFC 4180), with a row for each day, tenant and class.

    Without the usage file, there is one row for each tenant and class, and its day is empty. Raises
    Refused.
    """
    accounts, problem = parts.dispatcher.completion.accounts, _NO_FILE
    if accounts is not None:
        try:
            stored = await accounts.rows(first, last, _encoded_rows)
            if stored is not None:
                return stored
        except OSError as err:
            problem = str(err)
    _refuse_days(first, last, problem)
    tenants = parts.metrics.usage.tenants
    return _encoded(
        ("", tenant, urgency, used)
        for tenant, classes in sorted(tenants.items())
        for urgency, used in classes.items()
    )


async def _totals(parts: Parts, first: int, last: int) -> tuple[float, _Totals, str | None]:
    """Return the time since which is counted, the usage, and why it is not that of the file.

    "": no file is configured. `None`: it is that of the file.
    """
    accounts, usage, problem = parts.dispatcher.completion.accounts, parts.metrics.usage, ""
    if accounts is not None:
        try:
            stored = await accounts.totals(first, last)
            if stored is not None:
                since, totals = stored
                return usage.since if since is None else since, totals, None
        except OSError as err:
            problem = str(err)
    _refuse_days(first, last, problem or _NO_FILE)
    return usage.since, usage.tenants, problem


def _refuse_days(first: int, last: int, why: str) -> None:
    if first != FIRST or last != LAST:
        text = f"the usage of single days is not known: {why}"
        raise Refused(HTTPStatus.CONFLICT, "usage_not_stored", text)


def _encoded_rows(rows: Iterable[Row]) -> bytes:
    """Called in a thread, because there may be many rows."""
    found = islice(rows, ROWS_MAX + 1)
    return _encoded((date_of(day), tenant, urgency, used) for day, tenant, urgency, used in found)


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
