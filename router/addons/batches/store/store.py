"""Stores files, batches, and the results of batch lines in SQLite.

Called only in the worker's thread. After a crash at any time, these rules still hold:
1. When a call returns, its changes are on disk (WAL, synchronous=FULL: one fsync per transaction).
2. A line of a batch has at most one result. The first result stays, and the batch's counts change
   in the same transaction.
3. A batch's status only moves forward. A change that does not fit the present status has no effect.

If a line was sent before a crash but its result was not stored, it is sent again, and gets one
result.

Must never: store a client's secret.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from router.addons.batches.quota import Usage
from router.addons.batches.store.database import open_database
from router.addons.batches.store.rows import (
    CANCELLED,
    CANCELLING,
    COMPLETED,
    EXPIRED,
    FAILED,
    FINALIZING,
    IN_PROGRESS,
    UNFINISHED,
    VALIDATING,
    Batch,
    File,
)
from router.core.disk.transaction import Transaction
from router.core.owners import KEYED

_PURGED_AT_ONCE: Final = 200  # number of results of an ended batch that one transaction deletes
_FREED_AT_ONCE: Final = 1000  # number of database pages returned to the file system at once

_PENDING: Final = f"({', '.join(repr(status) for status in UNFINISHED)})"
_ENDED_AT: Final = "coalesce(completed_at, failed_at, expired_at, cancelled_at)"


class Result(NamedTuple):
    """The result of one batch line. `record` is its line of the output file or the error file."""

    batch: int
    line: int
    is_good: bool
    record: bytes


class Store:
    """The database of files, batches and results. All methods raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        self._db = open_database(path)
        self.usage = Usage()  # the usage of all stored files and all uploads in progress
        sums = "SELECT owner, count(*), sum(bytes) FROM files GROUP BY owner"
        for owner, files, size in self._db.execute(sums):
            self.usage.add(owner, files, size)

    def close(self) -> None:
        self._db.close()

    # -- files --------------------------------------------------------------------------------

    def add_file(self, file: File) -> None:
        with Transaction(self._db) as db:
            _insert_file(db, file)
        self.usage.add(file.owner, 1, file.bytes)

    def file(self, owner: str, file_id: str) -> File | None:
        row = self._db.execute(
            "SELECT * FROM files WHERE id = ? AND owner = ?", (file_id, owner)
        ).fetchone()
        return None if row is None else File(*row)

    def files(
        self, owner: str, after: str | None, limit: int, purpose: str | None, oldest_first: bool
    ) -> list[File]:
        """Return at most `limit` files of a list, from the first file after the file `after`."""
        words = "SELECT * FROM files WHERE owner = ?"
        values: list[object] = [owner]
        if purpose is not None:
            words += " AND purpose = ?"
            values.append(purpose)
        return [
            File(*row) for row in self._page(words, values, "files", after, limit, oldest_first)
        ]

    def user_of(self, file_id: str) -> str | None:
        """Return the ID of an unfinished batch that needs the file; None if no batch does."""
        row = self._db.execute(
            f"SELECT id FROM batches WHERE input_file = ? AND status IN {_PENDING}", (file_id,)
        ).fetchone()
        return None if row is None else str(row[0])

    def remove_file(self, file_id: str) -> None:
        with Transaction(self._db) as db:
            rows = db.execute(
                "DELETE FROM files WHERE id = ? RETURNING owner, bytes", (file_id,)
            ).fetchall()
        for owner, size in rows:
            self.usage.add(owner, -1, -size)

    def names(self) -> set[str]:
        """Return the names that files in the folder may have, including future result files."""
        db = self._db
        found = {str(row[0]) for row in db.execute("SELECT id FROM files")}
        for row in db.execute(
            f"SELECT next_output, next_error FROM batches WHERE status IN {_PENDING}"
        ):
            found.update(row)
        return found

    def outdated(self, now: int) -> list[str]:
        """Return the expired files that no batch needs."""
        rows = self._db.execute(
            "SELECT id FROM files WHERE expires_at <= ? AND id NOT IN"
            f" (SELECT input_file FROM batches WHERE status IN {_PENDING})",
            (now,),
        )
        return [str(row[0]) for row in rows]

    # -- batches ------------------------------------------------------------------------------

    def add_batch(self, batch: Batch) -> Batch:
        """Stores a new batch. Returns the batch with the number that the database gave it."""
        with Transaction(self._db) as db:
            marks = ", ".join("?" * (len(batch) - 1))
            names = ", ".join(Batch._fields[1:])
            cursor = db.execute(f"INSERT INTO batches ({names}) VALUES ({marks})", batch[1:])
            number = cursor.lastrowid
        assert number is not None
        return batch._replace(number=number)

    def batch(self, owner: str, batch_id: str) -> Batch | None:
        row = self._db.execute(
            "SELECT * FROM batches WHERE id = ? AND owner = ?", (batch_id, owner)
        ).fetchone()
        return None if row is None else Batch(*row)

    def numbered(self, number: int) -> Batch:
        row = self._db.execute("SELECT * FROM batches WHERE number = ?", (number,)).fetchone()
        return Batch(*row)

    def batches(self, owner: str, after: str | None, limit: int) -> list[Batch]:
        """Return at most `limit` batches older than the batch `after`, newest first."""
        words = "SELECT * FROM batches WHERE owner = ?"
        return [Batch(*row) for row in self._page(words, [owner], "batches", after, limit, False)]

    def unfinished(self) -> list[Batch]:
        rows = self._db.execute(f"SELECT * FROM batches WHERE status IN {_PENDING} ORDER BY number")
        return [Batch(*row) for row in rows]

    def unfinished_of(self, owner: str) -> tuple[int, int, int]:
        """Return the number of unfinished batches of this owner, of all owners without a known
        key, and of all owners.
        """
        (own, keyless, all_) = self._db.execute(
            "SELECT coalesce(sum(owner = ?), 0), coalesce(sum(substr(owner, 1, ?) <> ?), 0),"
            f" count(*) FROM batches WHERE status IN {_PENDING}",
            (owner, len(KEYED), KEYED),
        ).fetchone()
        return int(own), int(keyless), int(all_)

    # -- states of a batch --------------------------------------------------------------------

    def failed(self, number: int, errors: str, now: int) -> bool:
        """Moves a batch from validating to failed."""
        return self._move(
            "status = ?, errors = ?, failed_at = ?",
            (FAILED, errors, now),
            number,
            VALIDATING,
        )

    def validated(self, number: int, total: int, now: int) -> bool:
        """Moves a batch from validating to in_progress."""
        return self._move(
            "status = ?, total = ?, in_progress_at = ?",
            (IN_PROGRESS, total, now),
            number,
            VALIDATING,
        )

    def worked_through(self, number: int, ending: str, now: int) -> bool:
        """Moves a batch from in_progress to finalizing. `ending` is completed or expired."""
        return self._move(
            "status = ?, ending = ?, finalizing_at = ?",
            (FINALIZING, ending, now),
            number,
            IN_PROGRESS,
        )

    def cancel(self, number: int, now: int) -> bool:
        """Moves a batch from validating or in_progress to cancelling."""
        return self._move(
            "status = ?, ending = ?, cancelling_at = ?",
            (CANCELLING, CANCELLED, now),
            number,
            VALIDATING,
            IN_PROGRESS,
        )

    def ended(self, number: int, output: File | None, error: File | None, now: int) -> bool:
        """Moves a batch from finalizing or cancelling to its final status.

        Adds its result files in the same transaction.
        """
        batch = self.numbered(number)
        if batch.status not in (FINALIZING, CANCELLING):
            return False
        assert batch.ending in (COMPLETED, EXPIRED, CANCELLED)
        with Transaction(self._db) as db:
            for file in (output, error):
                if file is not None:
                    _insert_file(db, file)
            db.execute(
                f"UPDATE batches SET status = ending, {batch.ending}_at = ?, output_file = ?,"
                " error_file = ? WHERE number = ?",
                (
                    now,
                    None if output is None else output.id,
                    None if error is None else error.id,
                    number,
                ),
            )
        for file in (output, error):
            if file is not None:
                self.usage.add(file.owner, 1, file.bytes)
        return True

    def _move(self, change: str, values: Sequence[object], number: int, *of: str) -> bool:
        marks = ", ".join("?" * len(of))
        with Transaction(self._db) as db:
            cursor = db.execute(
                f"UPDATE batches SET {change} WHERE number = ? AND status IN ({marks})",
                (*values, number, *of),
            )
            return cursor.rowcount == 1

    # -- results ------------------------------------------------------------------------------

    def record(self, results: Iterable[Result]) -> None:
        """Stores all of the results or none. If a line already has a result, that result stays."""
        with Transaction(self._db) as db:
            for result in results:
                cursor = db.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", result)
                if cursor.rowcount:
                    count = "completed" if result.is_good else "failed"
                    db.execute(
                        f"UPDATE batches SET {count} = {count} + 1 WHERE number = ?",
                        (result.batch,),
                    )

    def recorded(self, number: int, first: int, last: int) -> set[int]:
        """Return the numbers of the lines from `first` to `last` that have a result."""
        rows = self._db.execute(
            "SELECT line FROM results WHERE batch = ? AND line BETWEEN ? AND ?",
            (number, first, last),
        )
        return {int(row[0]) for row in rows}

    def results(
        self, number: int, is_good: bool, after: int
    ) -> Generator[tuple[int, bytes], None, None]:
        """Yields the number and the record of each line after the line `after`, in order."""
        cursor = self._db.execute(
            "SELECT line, record FROM results WHERE batch = ? AND line > ? AND is_good = ?"
            " ORDER BY line",
            (number, after, is_good),
        )
        try:
            yield from cursor
        finally:
            cursor.close()

    # -- cleaning up --------------------------------------------------------------------------

    def spent(self) -> list[int]:
        """Return the ended batches whose line results are still in the database."""
        rows = self._db.execute(
            "SELECT DISTINCT batch FROM results WHERE batch NOT IN"
            f" (SELECT number FROM batches WHERE status IN {_PENDING})"
        )
        return [int(row[0]) for row in rows]

    def purge(self, number: int) -> bool:
        """Deletes some results of an ended batch. Returns whether results are left."""
        with Transaction(self._db) as db:
            cursor = db.execute(
                "DELETE FROM results WHERE rowid IN"
                " (SELECT rowid FROM results WHERE batch = ? LIMIT ?)",
                (number, _PURGED_AT_ONCE),
            )
            is_more = cursor.rowcount == _PURGED_AT_ONCE
        # `executescript` runs the statement to its end; `execute` would free only the first page.
        self._db.executescript(f"PRAGMA incremental_vacuum({_FREED_AT_ONCE})")
        (left,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return is_more or left > 0

    def forget(self, before: int) -> None:
        """Deletes the batches that ended before the time `before`."""
        with Transaction(self._db) as db:
            db.execute(
                f"DELETE FROM batches WHERE {_ENDED_AT} < ? AND status NOT IN {_PENDING}",
                (before,),
            )

    def _page(
        self,
        words: str,
        values: list[object],
        table: str,
        after: str | None,
        limit: int,
        oldest_first: bool,
    ) -> Iterator[tuple[Any, ...]]:
        if after is not None:
            sign = ">" if oldest_first else "<"
            words += f" AND number {sign} (SELECT number FROM {table} WHERE id = ? AND owner = ?)"
            values += [after, values[0]]
        words += f" ORDER BY number {'ASC' if oldest_first else 'DESC'} LIMIT ?"
        yield from self._db.execute(words, (*values, limit))


def _insert_file(db: sqlite3.Connection, file: File) -> None:
    marks = ", ".join("?" * (len(file) - 1))
    db.execute(f"INSERT INTO files ({', '.join(File._fields[1:])}) VALUES ({marks})", file[1:])
