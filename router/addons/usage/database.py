"""The SQLite file that keeps the usage of tenants: one row for each day, tenant and class.

Rows are changed only by additions, in one transaction for each write. So several routers may use
the same file at the same time, such as the old and the new process during a restart: no amount is
lost or counted twice. A write that fails changes nothing, and can be repeated.

Every function blocks. Call them only in a thread, one at a time. They raise sqlite3.Error or
OSError if the file cannot be used.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from router.addons.usage.pending import Rows
from router.core.disk.transaction import Transaction
from router.core.periods import DAY, MONTH, WEEK, first_day_of, number_of
from router.dispatch.accounts import Row
from router.observe.tenant_usage import FIGURES, Used

VERSION: Final = 1
_BUSY_S: Final = 2.0  # The longest time to wait for another process that writes to the file.
_SCHEMA: Final = """
CREATE TABLE usage (
    day INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    class TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    output INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    cost REAL NOT NULL,
    PRIMARY KEY (day, tenant, class)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_of_tenant ON usage (tenant, day);
"""
# Limit of a number in a row, so that no sum overflows SQLite's 64-bit integers, also if an engine
# reports absurd counts.
_MOST: Final = 1 << 53
_ADD: Final = (
    f"INSERT INTO usage (day, tenant, class, {', '.join(FIGURES)}) "
    f"VALUES ({', '.join('?' * (3 + len(FIGURES)))}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = MIN({name} + excluded.{name}, {_MOST})" for name in FIGURES)
)
# The rows of tenants. The rows of budgets for one model, such as `acme (model)`, are no use of
# their own.
_OF_TENANTS: Final = "tenant NOT LIKE '_% (%)'"
_SUMS: Final = ", ".join(f"SUM({name})" for name in FIGURES)

Amount = tuple[float, float]  # Tokens and cost.


class WrongVersion(sqlite3.DatabaseError):
    """The file is of another version of this program, which has another schema."""


class UsageDatabase:
    """The open file."""

    def __init__(self, path: str) -> None:
        """Opens or creates the file."""
        # Only this user may read the file, because it names tenants.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._path = path
        self._file = _identity(path)
        self._seen = -1  # The `data_version` at the last call of `is_changed`.
        self._db = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=_BUSY_S
        )
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            with Transaction(self._db) as db:
                # Another process may create the tables at the same time.
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version == 0:
                    for statement in _SCHEMA.split(";")[:-1]:
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {VERSION}")
                elif version != VERSION:
                    raise WrongVersion(f"version {version} of the file, not {VERSION}")
        except BaseException:
            self._db.close()
            raise

    def is_moved(self) -> bool:
        """Whether the path no longer names the open file."""
        try:
            return _identity(self._path) != self._file
        except OSError:
            return True

    def add(self, pending: Rows) -> None:
        """Adds amounts to the rows: all of them, or none if it raises."""
        if pending:
            with Transaction(self._db) as db:
                db.executemany(
                    _ADD,
                    (
                        (*key, *(min(getattr(used, name), _MOST) for name in FIGURES))
                        for key, used in pending.items()
                    ),
                )

    def prune(self, days: int) -> None:
        """Deletes all but the last `days` days that have rows.

        Days without rows do not count, so a clock that jumps into the future deletes one day.
        """
        with Transaction(self._db) as db:
            # Two statements: SQLite 3.40 ignores OFFSET in a subquery with DISTINCT.
            found = db.execute(
                "SELECT DISTINCT day FROM usage ORDER BY day DESC LIMIT 1 OFFSET ?", (days,)
            ).fetchone()
            if found is not None:
                db.execute("DELETE FROM usage WHERE day <= ?", found)

    def is_changed(self) -> bool:
        """Whether another process has changed the file since the last call; True: the first call.

        SQLite's `data_version` does not change with the writes of this connection.
        """
        before = self._seen
        self._seen = self._db.execute("PRAGMA data_version").fetchone()[0]
        return self._seen != before

    def amounts(self, tenant: str, day: int) -> list[Amount]:
        """Return the amounts of a tenant on a day, and in the week and the month of the day."""
        spans = [
            (first_day_of(kind, number), first_day_of(kind, number + 1))
            for kind in (DAY, WEEK, MONTH)
            for number in [number_of(kind, day)]
        ]
        rows = self._db.execute(
            "SELECT day, SUM(prompt + output), SUM(cost) FROM usage "
            "WHERE tenant = ? AND day >= ? AND day < ? GROUP BY day",
            (tenant, min(spans)[0], max(end for _, end in spans)),
        ).fetchall()
        return [
            (
                sum(float(tokens) for at, tokens, _ in rows if first <= at < end),
                sum(cost for at, _, cost in rows if first <= at < end),
            )
            for first, end in spans
        ]

    def totals(self, first: int, last: int) -> dict[str, dict[str, Used]]:
        """Return the usage from day `first` to day `last`, by tenant and class."""
        found: dict[str, dict[str, Used]] = {}
        for tenant, urgency, *figures in self._db.execute(
            f"SELECT tenant, class, {_SUMS} FROM usage WHERE day BETWEEN ? AND ? "
            f"AND {_OF_TENANTS} GROUP BY tenant, class",
            (first, last),
        ):
            found.setdefault(tenant, {})[urgency] = _used(figures)
        return found

    def first_day(self, first: int, last: int) -> int | None:
        """Return the first day with rows from day `first` to day `last`."""
        found = self._db.execute(
            "SELECT MIN(day) FROM usage WHERE day BETWEEN ? AND ?", (first, last)
        ).fetchone()[0]
        return None if found is None else int(found)

    def rows(self, first: int, last: int) -> Iterator[Row]:
        """Yields the rows from day `first` to day `last`, in the order of days and tenants."""
        for day, tenant, urgency, *figures in self._db.execute(
            f"SELECT day, tenant, class, {', '.join(FIGURES)} FROM usage "
            f"WHERE day BETWEEN ? AND ? AND {_OF_TENANTS} ORDER BY day, tenant, class",
            (first, last),
        ):
            yield day, tenant, urgency, _used(figures)

    def close(self) -> None:
        self._db.close()


def _used(figures: Iterable[float]) -> Used:
    used = Used()
    for name, value in zip(FIGURES, figures, strict=True):
        setattr(used, name, value)
    return used


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
