"""Transactions of an SQLite database."""

from __future__ import annotations

import sqlite3


class Transaction:
    """An atomic transaction. A failed commit, as on a full disk, leaves the database unchanged."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        self._db.execute("BEGIN IMMEDIATE")
        return self._db

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            try:
                self._db.execute("COMMIT")
                return
            except sqlite3.Error:
                self._roll_back()
                raise
        self._roll_back()

    def _roll_back(self) -> None:
        # If the disk is full, SQLite may have rolled back the transaction already.
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
