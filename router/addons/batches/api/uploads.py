"""Receives one upload: parses the body as a form (`form.py`), and writes the form's file to disk.

The upload is refused if it would exceed its owner's quota. Only the piece that is being written is
in memory, and the event loop runs between two pieces.
Import only through `server.py`: this module imports aiohttp.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import StreamReader

from router.addons.batches.api import asked
from router.addons.batches.api.asked import Refused
from router.addons.batches.api.form import SLACK, Form
from router.addons.batches.ids import new_file_id
from router.addons.batches.quota import check_quota
from router.addons.batches.store.blob_store import BlobStore
from router.addons.batches.store.rows import File
from router.addons.batches.store.store import Store
from router.config.model import Batches
from router.core.clock import time
from router.core.disk.worker import Worker
from router.core.numbers import whole_number

# The maximum number of bytes that are parsed in one turn of the event loop, in at most 14 ms.
STEP: Final = 16 * 1024
PIECE: Final = 256 * 1024  # minimum number of bytes in one write to a file, except in the last


class Upload:
    """An unfinished file (draft) whose bytes count against its owner's quota as they arrive.

    Call `begin` first and `close` at the end, all in the worker's thread. `begin`, `take` and
    `close` raise Refused or OSError.
    """

    def __init__(self, store: Store, blobs: BlobStore, rules: Batches, owner: str) -> None:
        self.file_id = new_file_id()
        self.bytes = 0
        self._store = store
        self._blobs = blobs
        self._rules = rules
        self._owner = owner
        self._draft = blobs.draft(self.file_id)
        self._files = 0  # 1 while this upload is counted in the owner's usage, else 0

    def begin(self, length: int) -> None:
        """Begins an upload. `length`: the size of the body in bytes; 0 if it is unknown."""
        self._blobs.check_room(length)
        check_quota(self._rules, self._store.usage, self._owner, 1, max(0, length - SLACK))
        self._files = 1
        self._store.usage.add(self._owner, 1, 0)
        self._draft.open()

    def take(self, piece: bytes | bytearray) -> None:
        if self.bytes + len(piece) > self._rules.file:
            raise too_large(self._rules)
        check_quota(self._rules, self._store.usage, self._owner, 0, len(piece))
        self._store.usage.add(self._owner, 0, len(piece))
        self.bytes += len(piece)
        self._draft.write(piece)

    def keep(self, file: File) -> None:
        """Adds the file, which is complete, to the store."""
        self._draft.keep()
        self._count_no_more()
        try:
            self._store.add_file(file)
        except BaseException:
            self._blobs.remove(file.id)
            raise

    def close(self) -> None:
        """Removes the draft, unless `keep` was called."""
        self._count_no_more()
        self._draft.drop()

    def _count_no_more(self) -> None:
        if self._files:
            self._files = 0
            self._store.usage.add(self._owner, -1, -self.bytes)


async def receive(content: StreamReader, form: Form, upload: Upload, worker: Worker) -> None:
    """Reads the body into `form`, and writes the form's file to `upload`, which has begun.

    Raises Refused, OSError, and aiohttp's errors for an incomplete body.
    """
    while piece := await content.read(STEP):
        form.feed(piece)
        if form.held >= PIECE:
            await worker(upload.take, form.take())
        await asyncio.sleep(0)  # `read` does not yield while bytes are available
    form.finish()
    await worker(upload.take, form.take())


def described(form: Form, upload: Upload, owner: str, rules: Batches) -> File:
    """Return the file that the form of an upload describes. Raises Refused."""
    if form.filename is None:
        raise Refused(400, "missing_required_parameter", "The form has no file.", "file")
    fields = form.fields
    if fields.get("purpose") != "batch":
        raise Refused(400, "invalid_purpose", "The purpose must be batch.", "purpose")
    now = int(time())
    keep_s = int(rules.retention_s)
    if "expires_after[seconds]" in fields:
        seconds = fields["expires_after[seconds]"]
        anchor = fields.get("expires_after[anchor]", "")
        given = whole_number(seconds, 9) or 0
        keep_s = asked.expires_after(anchor, given, "expires_after")
    return File(0, upload.file_id, owner, "batch", form.filename, upload.bytes, now, now + keep_s)


def too_large(rules: Batches) -> Refused:
    return Refused(413, "file_too_large", f"The file is over {rules.file} bytes.", "file")
