"""What was not written stays in memory, in a bounded number of rows."""

from __future__ import annotations

from router.addons.usage.pending import Pending
from router.observe.tenant_usage import OTHERS


def test_amounts_that_could_not_be_written_are_added_again() -> None:
    ours = Pending(rows_max=2)
    for tenant in ("acme", "umbrella", "third", "fourth", "acme"):
        ours.row(1, tenant, "low").count(10, 0, 1, False, 0.5)
    taken = ours.take()
    assert {tenant: row.requests for (_, tenant, _), row in taken.items()} == {
        "acme": 2,
        "umbrella": 1,
        OTHERS: 2,
    }
    ours.row(1, "acme", "low").count(10, 0, 1, False, 0.5)
    ours.give_back(taken)
    assert sum(row.requests for row in ours.take().values()) == 6
    assert ours.take() == {}
