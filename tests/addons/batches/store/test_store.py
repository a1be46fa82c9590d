"""The store: one result per line, forward status changes only, atomic writes on a full disk."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from router.addons.batches.store.blob_store import BlobStore, Draft
from router.addons.batches.store.database import VERSION, check_version, open_database
from router.addons.batches.store.rows import Batch, File
from router.addons.batches.store.store import Result, Store

NUMBER = 1  # number of the only batch
BLANK: dict[str, Any] = dict.fromkeys(Batch._fields)


def new_batch() -> Batch:
    usual = {
        "id": "batch_1",
        "owner": "o",
        "endpoint": "/v1/x",
        "completion_window": "24h",
        "input_file": "file-1",
        "next_output": "file-2",
        "next_error": "file-3",
        "status": "validating",
        "ending": "completed",
        "created_at": 100,
        "expires_at": 200,
    }
    counts = dict.fromkeys(("number", "needs_secret", "total", "completed", "failed"), 0)
    return Batch(**{**BLANK, **usual, **counts})


def file(name: str) -> File:
    return File(0, name, "o", "batch", "in.jsonl", 3, created_at=100, expires_at=1000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "batches.sqlite")
    found.add_file(file("file-1"))
    found.add_batch(new_batch())
    yield found
    found.close()


def test_a_line_has_one_result(store: Store) -> None:
    store.validated(NUMBER, 3, 101)
    store.record([Result(NUMBER, 1, True, b"first"), Result(NUMBER, 1, False, b"second")])
    store.record([Result(NUMBER, 1, False, b"third"), Result(NUMBER, 2, False, b"other")])
    batch = store.numbered(NUMBER)
    assert (batch.completed, batch.failed) == (1, 1)
    assert list(store.results(NUMBER, True, 0)) == [(1, b"first")]
    assert list(store.results(NUMBER, False, 0)) == [(2, b"other")]
    assert store.recorded(NUMBER, 1, 3) == {1, 2}


def test_moves_go_forward_only(store: Store) -> None:
    assert store.validated(NUMBER, 3, 101)
    assert not store.validated(NUMBER, 4, 102)
    assert not store.failed(NUMBER, "[]", 102)
    assert store.cancel(NUMBER, 103)
    assert not store.cancel(NUMBER, 104)
    assert not store.worked_through(NUMBER, "completed", 104)
    assert store.ended(NUMBER, file("file-2"), None, 105)
    assert not store.ended(NUMBER, None, None, 106)
    batch = store.numbered(NUMBER)
    assert (batch.status, batch.total, batch.cancelled_at) == ("cancelled", 3, 105)
    assert (batch.output_file, batch.error_file) == ("file-2", None)
    assert store.unfinished() == []


def test_an_input_is_needed_until_its_batch_is_over(store: Store) -> None:
    assert store.user_of("file-1") == "batch_1"
    assert store.outdated(5000) == []
    assert store.names() == {"file-1", "file-2", "file-3"}
    store.failed(NUMBER, "[]", 101)
    assert store.user_of("file-1") is None
    assert store.outdated(999) == []
    assert store.outdated(1000) == ["file-1"]
    assert store.names() == {"file-1"}


@pytest.mark.parametrize("ending", ["failed", "completed", "expired", "cancelled"])
def test_an_ended_batch_is_kept_from_its_end_on(store: Store, ending: str) -> None:
    if ending == "failed":
        store.failed(NUMBER, "[]", 500)
    else:
        store.validated(NUMBER, 3, 101)
        if ending == "cancelled":
            store.cancel(NUMBER, 102)
        else:
            store.worked_through(NUMBER, ending, 102)
        store.forget(10_000)
        assert store.batch("o", "batch_1") is not None, "unfinished"
        store.ended(NUMBER, None, None, 500)
    store.forget(500)
    assert store.batch("o", "batch_1") is not None
    store.forget(501)
    assert store.batch("o", "batch_1") is None


def test_a_full_disk_changes_nothing(store: Store) -> None:
    """SQLite itself reports a full disk: the database may not get another page."""
    store.validated(NUMBER, 100, 101)
    store.record([Result(NUMBER, 1, True, b"kept")])
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 5}")
    large = [Result(NUMBER, at, True, b"x" * 10_000) for at in range(2, 12)]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.record(large)
    assert store.recorded(NUMBER, 1, 100) == {1}
    assert store.numbered(NUMBER).completed == 1
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.record(large)
    assert store.numbered(NUMBER).completed == 11


def test_what_is_over_is_cleared_away(store: Store) -> None:
    store.validated(NUMBER, 500, 101)
    store.record(Result(NUMBER, at, True, b"x" * 3000) for at in range(1, 501))
    assert store.spent() == []
    store.worked_through(NUMBER, "completed", 102)
    assert store.spent() == []
    store.ended(NUMBER, None, None, 103)
    assert store.spent() == [NUMBER]
    before = store._db.execute("PRAGMA page_count").fetchone()[0]
    while store.purge(NUMBER):
        pass
    assert store.spent() == []
    assert store._db.execute("PRAGMA page_count").fetchone()[0] < before / 4


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


NAME = "file-1"


def written(blobs: BlobStore) -> Draft:
    draft = blobs.draft(NAME)
    draft.open()
    draft.write(b"data")
    return draft


def names(folder: Path) -> list[str]:
    return [path.name for path in (folder / "files").iterdir()]


def test_a_file_has_its_final_name_when_it_is_complete(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path, 0)
    draft = written(blobs)
    assert names(tmp_path) == [NAME + ".part"]
    draft.keep()
    draft.drop()
    assert names(tmp_path) == [NAME]
    blobs.close()


def test_no_file_is_left_if_its_name_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: BlobStore) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    blobs = BlobStore(tmp_path, 0)
    draft = written(blobs)
    monkeypatch.setattr(BlobStore, "sync", broken)
    with pytest.raises(OSError):
        draft.keep()
    draft.drop()
    assert names(tmp_path) == []
    blobs.close()


def test_no_draft_is_left_if_it_cannot_be_renamed(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path, 0)
    draft = written(blobs)
    blobs.path(NAME).mkdir()
    with pytest.raises(OSError):
        draft.keep()
    draft.drop()
    assert names(tmp_path) == [NAME]  # only the folder
    blobs.close()
