"""Writes the two result files of an ended batch: the output file and the error file.

The files are written from the store, in the order of the batch's lines. So they can be written
again after a crash with the same result. `write_results` is a generator for the worker, which
yields after each `PIECE` bytes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from router.addons.batches.api.shapes import CANCELLED as WAS_CANCELLED
from router.addons.batches.api.shapes import EXPIRED as HAS_EXPIRED
from router.addons.batches.api.shapes import unanswered
from router.addons.batches.ids import request_id
from router.addons.batches.run.lines import PIECE, Cutter, parse
from router.addons.batches.store.blob_store import BlobStore, Draft
from router.addons.batches.store.rows import CANCELLED, EXPIRED, Batch
from router.addons.batches.store.store import Store

_WHY: Final = {CANCELLED: WAS_CANCELLED, EXPIRED: HAS_EXPIRED}


def write_results(
    batch: Batch, store: Store, blobs: BlobStore, longest: int
) -> Generator[None, None, tuple[int, int]]:
    """Writes the output file and the error file. Returns the size of each in bytes.

    A file without lines is not written; its size is 0. `longest`: the maximum bytes of a line of
    the batch file. Raises OSError and sqlite3.Error. After an error the function may be called
    again.
    """
    blobs.check_room(0)
    sizes = []
    for name, is_good in ((batch.next_output, True), (batch.next_error, False)):
        draft = blobs.draft(name)
        try:
            draft.open()
            yield from _copy(draft, store, batch.number, is_good)
            if not is_good and batch.total and batch.ending in _WHY:
                yield from _add_unanswered(draft, batch, store, blobs, longest)
            if draft.bytes:
                draft.keep()
            sizes.append(draft.bytes)
        finally:
            draft.drop()
    return sizes[0], sizes[1]


def _copy(draft: Draft, store: Store, number: int, is_good: bool) -> Generator[None, None, None]:
    line = 0
    is_more = True
    while is_more:
        is_more = False
        held = bytearray()
        rows = store.results(number, is_good, line)
        for line, record in rows:  # noqa: B007  (`line` is used after the loop, in the next query)
            held += record
            if len(held) >= PIECE:
                is_more = True
                break
        rows.close()  # while a query is open, the database's write-ahead log cannot shrink
        draft.write(held)
        yield


def _add_unanswered(
    draft: Draft, batch: Batch, store: Store, blobs: BlobStore, longest: int
) -> Generator[None, None, None]:
    """Writes an error for every line without a result: the batch was cancelled or has expired."""
    code, message = _WHY[batch.ending]
    file = blobs.reading(batch.input_file)
    try:
        cutter = Cutter(file, longest)
        while not cutter.is_over:
            held = bytearray()
            for line in _requests(cutter, batch.endpoint, store, batch.number):
                held += unanswered(request_id(batch.id, line[0]), line[1], code, message)
            draft.write(held)
            yield
    finally:
        file.close()


def _requests(
    cutter: Cutter, endpoint: str, store: Store, number: int
) -> Generator[tuple[int, str], None, None]:
    """Yields the number and the custom_id of each line in the next piece that has no result."""
    found = list(cutter.take())
    if found:
        done = store.recorded(number, found[0][0], found[-1][0])
        for at, raw in found:
            if at not in done:
                yield at, parse(at, raw, endpoint).custom_id
