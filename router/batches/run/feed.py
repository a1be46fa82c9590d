"""Reads the lines of a running batch that have no result yet, one piece of its file at a time.

The position in the file is not stored. After a restart the file is read from its beginning, and the
store reports which lines to skip. Called only in the worker.
"""

from __future__ import annotations

from router.batches.run.lines import Cutter, Line, parse
from router.batches.store.blob_store import BlobStore
from router.batches.store.rows import Batch
from router.batches.store.store import Store


class Feed:
    """The lines of one batch, in order, each returned once."""

    def __init__(self, batch: Batch, store: Store, blobs: BlobStore, longest: int) -> None:
        self._batch = batch
        self._store = store
        self._file = blobs.reading(batch.input_file)
        self._cutter = Cutter(self._file, longest)
        # Lines cut from the file but not yet checked for results.
        self._found: list[tuple[int, bytes]] = []
        self.is_over = False

    def take(self) -> list[Line]:
        """The next lines. An empty list is not the end; `is_over` is.

        Raises OSError and sqlite3.Error; Unusable if the file is not the one that was validated.
        """
        if not self._found:
            self._found = list(self._cutter.take())
        found: list[Line] = []
        if self._found:
            # If the database cannot be read now, the lines are kept for the next attempt.
            first, last = self._found[0][0], self._found[-1][0]
            done = self._store.recorded(self._batch.number, first, last)
            endpoint = self._batch.endpoint
            found = [parse(at, raw, endpoint) for at, raw in self._found if at not in done]
            self._found = []
        self.is_over = self._cutter.is_over
        return found

    def close(self) -> None:
        self._file.close()
