"""The usage file: additions of several processes, atomic writes, bounded size."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from router.addons.usage.database import UsageDatabase
from router.addons.usage.pending import Pending, Rows
from router.core.periods import parse_date
from router.observe.tenant_usage import OTHERS, Used

DAY = parse_date("2026-11-29")


def used(tokens: int = 10, cost: float = 0.5) -> Used:
    made = Used()
    made.count(tokens, 1, 1, True, cost)
    return made


def pending(*keys: tuple[int, str, str], tokens: int = 10) -> Rows:
    return {key: used(tokens) for key in keys}


def test_two_processes_add_to_the_same_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "usage.db")
    one, two = UsageDatabase(path), UsageDatabase(path)
    for database in (one, two, one):
        database.add(pending((DAY, "acme", "high"), (DAY + 1, "acme", "low")))
    totals = two.totals(DAY, DAY)
    assert totals.keys() == {"acme"}
    row = totals["acme"]["high"]
    assert (row.requests, row.prompt, row.output, row.estimated) == (3, 30, 3, 3)
    assert row.cost == pytest.approx(1.5)
    assert two.amounts("acme", DAY) == [(33.0, 1.5), (33.0, 1.5), (66.0, 3.0)]
    assert two.amounts("acme", DAY - 1) == [(0.0, 0.0), (33.0, 1.5), (66.0, 3.0)]
    assert two.amounts("umbrella", DAY) == [(0.0, 0.0)] * 3
    # The next month does not include this month.
    assert two.amounts("acme", DAY + 2) == [(0.0, 0.0), (33.0, 1.5), (0.0, 0.0)]
    assert two.first_day(0, 1 << 20) == DAY
    assert two.first_day(0, 1) is None
    one.close()
    two.close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    database = UsageDatabase(str(tmp_path / "usage.db"))
    bad = used()
    bad.cost = float("nan")  # SQLite stores NaN as NULL, which the table refuses
    with pytest.raises(sqlite3.Error):
        database.add({(DAY, "acme", "low"): used(), (DAY, "acme", "high"): bad})
    assert database.totals(0, 1 << 20) == {}
    database.add(pending((DAY, "acme", "low")))
    assert database.totals(0, 1 << 20)["acme"]["low"].requests == 1
    database.close()


def test_absurd_counts_do_not_stop_the_writes(tmp_path: Path) -> None:
    database = UsageDatabase(str(tmp_path / "usage.db"))
    for _ in range(3):
        database.add(pending(*((DAY + n, "acme", "low") for n in range(3)), tokens=1 << 62))
    assert database.totals(0, 1 << 20)["acme"]["low"].prompt == 3 << 53
    assert database.amounts("acme", DAY)[0][0] > 1 << 53
    database.close()


def test_only_the_last_days_with_rows_are_kept(tmp_path: Path) -> None:
    database = UsageDatabase(str(tmp_path / "usage.db"))
    days = [DAY + 3 * n for n in range(10)]
    for day in days:
        database.add(pending((day, "acme", "low"), (day, "umbrella", "low")))
    database.prune(20)
    assert len(list(database.rows(0, 1 << 20))) == 20
    # A clock that jumped into the future for a while costs one day, not all.
    database.add(pending((DAY + 100_000, "acme", "low")))
    database.prune(4)
    assert sorted({day for day, *_ in database.rows(0, 1 << 20)}) == [*days[-3:], DAY + 100_000]
    database.close()


@pytest.mark.parametrize("content", [b"not a database" * 100, b"keys: {}\n"])
def test_another_file_is_refused_and_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "usage.db"
    path.write_bytes(content)
    with pytest.raises(sqlite3.Error):
        UsageDatabase(str(path))
    assert path.read_bytes() == content


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "usage.db")
    database = UsageDatabase(path)
    database._db.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(sqlite3.DatabaseError, match="version 9 of the file, not 1"):
        UsageDatabase(path)


def test_writes_of_another_process_are_noticed(tmp_path: Path) -> None:
    path = str(tmp_path / "usage.db")
    one, two = UsageDatabase(path), UsageDatabase(path)
    assert one.is_changed() and not one.is_changed()
    one.add(pending((DAY, "acme", "low")))
    assert not one.is_changed()
    two.add(pending((DAY, "acme", "low")))
    assert one.is_changed() and not one.is_changed()
    one.close()
    two.close()


def test_a_moved_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    database = UsageDatabase(str(path))
    assert not database.is_moved()
    path.rename(tmp_path / "old.db")
    assert database.is_moved()
    path.touch()
    assert database.is_moved()
    database.close()


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
