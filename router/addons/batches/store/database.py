"""Opens the SQLite database, and declares its tables."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

VERSION: Final = 2

SCHEMA: Final = """
CREATE TABLE files (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    purpose TEXT NOT NULL,
    filename TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX files_of_owner ON files (owner, number, bytes);
CREATE INDEX files_by_expiry ON files (expires_at);
CREATE TABLE batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    needs_secret INTEGER NOT NULL,
    endpoint TEXT NOT NULL,
    completion_window TEXT NOT NULL,
    input_file TEXT NOT NULL,
    output_file TEXT,
    error_file TEXT,
    next_output TEXT NOT NULL,
    next_error TEXT NOT NULL,
    output_seconds INTEGER,
    status TEXT NOT NULL,
    ending TEXT NOT NULL,
    metadata TEXT,
    errors TEXT,
    total INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    in_progress_at INTEGER,
    expires_at INTEGER NOT NULL,
    finalizing_at INTEGER,
    completed_at INTEGER,
    failed_at INTEGER,
    expired_at INTEGER,
    cancelling_at INTEGER,
    cancelled_at INTEGER
) STRICT;
CREATE INDEX batches_of_owner ON batches (owner, number);
CREATE INDEX batches_by_status ON batches (status);
CREATE TABLE results (
    batch INTEGER NOT NULL,
    line INTEGER NOT NULL,
    is_good INTEGER NOT NULL,
    record BLOB NOT NULL,
    UNIQUE (batch, line)
) STRICT;
"""


def open_database(path: Path) -> sqlite3.Connection:
    """Opens or creates the database. Raises sqlite3.Error, and OSError for an unusable file."""
    # Only this user may read the file, because it contains clients' requests. SQLite gives its
    # other files, such as the WAL, the same mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        # `auto_vacuum` can be set only before the first table is created.
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA secure_delete = FAST")
        if not _has_tables(db, path):
            db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def check_version(path: Path) -> None:
    """Raises sqlite3.Error if this program cannot use the database, which another process has open.

    Changes nothing.
    """
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        _has_tables(db, path)
    finally:
        db.close()


def _has_tables(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the database is not new. Raises sqlite3.DatabaseError if it is of another version."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise sqlite3.DatabaseError(f"{path} is of version {version}, not {VERSION}")
    return bool(version)
