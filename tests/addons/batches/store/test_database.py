"""The version of the batch database: this program never changes a database of another version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from router.addons.batches.store.database import VERSION, check_version, open_database


def test_a_database_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a b?#%.sqlite"
    with closing(open_database(path)) as db:
        check_version(path)  # while another connection has it open
        db.execute("PRAGMA user_version = 9")
        why = f"version 9, not {VERSION}"
        for refuses in (check_version, open_database):
            with pytest.raises(sqlite3.DatabaseError, match=why):
                refuses(path)


def test_the_check_creates_no_database(tmp_path: Path) -> None:
    path = tmp_path / "batches.sqlite"
    with pytest.raises(sqlite3.OperationalError):
        check_version(path)
    assert not path.exists()
