"""Collects the usage since the last write of the usage file, by day, tenant and class.

Must never: store more rows than `rows_max`. While the file cannot be written and there are more,
the amounts of further tenants are collected together.
"""

from __future__ import annotations

from typing import Final

from router.observe.tenant_usage import OTHERS, Used

ROWS_MAX: Final = 100_000  # about 30 MB

# Amounts by day (days since 1970), tenant and class.
Rows = dict[tuple[int, str, str], Used]


class Pending:
    """The amounts of one router that are not in the file."""

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows: Rows = {}
        self._rows_max = rows_max

    def row(self, day: int, tenant: str, urgency: str) -> Used:
        """Return the amounts to which a request is added."""
        row = self._rows.get((day, tenant, urgency))
        if row is None:
            if len(self._rows) >= self._rows_max:
                tenant = OTHERS
            row = self._rows.setdefault((day, tenant, urgency), Used())
        return row

    def take(self) -> Rows:
        """Return the amounts since the last call, and begin to collect anew."""
        rows, self._rows = self._rows, {}
        return rows

    def give_back(self, rows: Rows) -> None:
        """Collects amounts again that could not be written."""
        for (day, tenant, urgency), used in rows.items():
            self.row(day, tenant, urgency).add(used)
