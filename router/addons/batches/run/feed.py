"""Reads the lines of a batch file that have no result yet, one piece of the file at a time.

The position in the file is not stored. After a restart the file is read from its beginning, and
lines that have a result in the store are skipped. Called only in the worker's thread.
"""

from __future__ import annotations

from router.addons.batches.run.lines import Cutter, Line, parse
from router.addons.batches.store.blob_store import BlobStore
from router.addons.batches.store.rows import Batch
from router.addons.batches.store.store import Store


class Feed:
    """Return the lines of one batch file in their order, each line once."""

    def __init__(self, batch: Batch, store: Store, blobs: BlobStore, longest: int) -> None:
        self._batch = batch
        self._store = store
        self._file = blobs.reading(batch.input_file)
        self._cutter = Cutter(self._file, longest)
        # Lines that were read from the file, but for which no result was searched yet.
        self._found: list[tuple[int, bytes]] = []
        self.is_over = False

    def take(self) -> list[Line]:
        """Return the next lines. The list may be empty before the end; `is_over` marks the end.

        Raises OSError and sqlite3.Error. Raises Unusable if the file is not the file that was
        validated.
        """
        if not self._found:
            self._found = list(self._cutter.take())
        found: list[Line] = []
        if self._found:
            # If `recorded` raises, the lines stay in `_found` for the next call.
            first, last = self._found[0][0], self._found[-1][0]
            done = self._store.recorded(self._batch.number, first, last)
            endpoint = self._batch.endpoint
            found = [parse(at, raw, endpoint) for at, raw in self._found if at not in done]
            self._found = []
        self.is_over = self._cutter.is_over
        return found

    def close(self) -> None:
        self._file.close()
