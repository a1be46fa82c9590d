"""One file on its way in: a form's parts, and bytes into a draft, within what its owner may have.

Nothing of it is held but the piece that is being written. Import only through `door.py`: this
module pulls in aiohttp.
"""

from __future__ import annotations

from time import time
from typing import Final

from aiohttp import BodyPartReader, hdrs, web

from router.batches import asked
from router.batches.asked import Refused
from router.batches.ids import new_file_id
from router.batches.quota import check_quota
from router.batches.rows import File
from router.batches.shelf import Shelf
from router.batches.store import Store
from router.batches.worker import Worker
from router.config.model import Batches

PIECE: Final = 256 * 1024
FIELD_MAX: Final = 1024  # bytes of a form's text field
PARTS: Final = 32  # of a form
FORM_SLACK: Final = 64 * 1024  # what a form may weigh beside its file

_ENCODED: Final = (hdrs.CONTENT_ENCODING, hdrs.CONTENT_TRANSFER_ENCODING)


class Upload:
    """A draft that counts as its owner's from the first byte. Called in the worker only.

    `begin` first, `close` in the end; both raise Refused or OSError, and so does `take`.
    """

    def __init__(self, store: Store, shelf: Shelf, rules: Batches, owner: str) -> None:
        self.file_id = new_file_id()
        self.bytes = 0
        self._store = store
        self._shelf = shelf
        self._rules = rules
        self._owner = owner
        self._draft = shelf.draft(self.file_id)
        self._files = 0  # of the owner's usage that are this one

    def begin(self, length: int) -> None:
        """So many bytes are announced; 0: nobody knows."""
        self._shelf.check_room(length)
        check_quota(self._rules, self._store.usage, self._owner, 1, max(0, length - FORM_SLACK))
        self._files = 1
        self._store.usage.add(self._owner, 1, 0)
        self._draft.open()

    def take(self, piece: bytes) -> None:
        if self.bytes + len(piece) > self._rules.file:
            raise too_large(self._rules)
        check_quota(self._rules, self._store.usage, self._owner, 0, len(piece))
        self._store.usage.add(self._owner, 0, len(piece))
        self.bytes += len(piece)
        self._draft.write(piece)

    def keep(self, file: File) -> None:
        """It is whole: into the books."""
        self._draft.keep()
        self._count_no_more()
        try:
            self._store.add_file(file)
        except BaseException:
            self._shelf.remove(file.id)
            raise

    def close(self) -> None:
        """Nothing stays of what was not kept."""
        self._count_no_more()
        self._draft.drop()

    def _count_no_more(self) -> None:
        if self._files:
            self._files = 0
            self._store.usage.add(self._owner, -1, -self.bytes)


async def receive(request: web.Request, upload: Upload, worker: Worker) -> dict[str, str]:
    """Read the form: its file into `upload`, which has begun; its text fields are returned, with
    the file's own name as `filename`. Raises Refused, OSError, and ValueError as aiohttp does."""
    form: dict[str, str] = {}
    parts = 0
    async for part in await request.multipart():
        parts += 1
        if parts > PARTS:
            raise Refused(400, "bad_multipart", f"The form has more than {PARTS} parts.")
        if not isinstance(part, BodyPartReader) or part.name is None:
            raise Refused(400, "bad_multipart", "The form has a part without a name.")
        if any(name in part.headers for name in _ENCODED):
            raise Refused(400, "bad_multipart", "The parts of the form must not be encoded.")
        if part.name != "file":
            form[part.name] = await _field(part)
            continue
        if "filename" in form:
            raise Refused(400, "bad_multipart", "The form has more than one file.", "file")
        form["filename"] = asked.filename_of(part.filename)
        while piece := await part.read_chunk(PIECE):
            await worker(upload.take, piece)
    return form


async def _field(part: BodyPartReader) -> str:
    held = bytearray()
    while piece := await part.read_chunk(FIELD_MAX + 1):
        held += piece
        if len(held) > FIELD_MAX:
            message = f"The form's field {str(part.name)[:64]} is too long."
            raise Refused(400, "bad_multipart", message)
    return held.decode("utf-8", "replace")


def described(form: dict[str, str], upload: Upload, owner: str, rules: Batches) -> File:
    """The file that a form makes of an upload. Raises Refused."""
    if "filename" not in form:
        raise Refused(400, "missing_required_parameter", "The form has no file.", "file")
    if form.get("purpose") != "batch":
        raise Refused(400, "invalid_purpose", "The purpose must be batch.", "purpose")
    now = int(time())
    keep_s = int(rules.retention_s)
    if "expires_after[seconds]" in form:
        seconds = form["expires_after[seconds]"]
        anchor = form.get("expires_after[anchor]", "")
        given = int(seconds) if seconds.isdecimal() and len(seconds) < 10 else 0
        keep_s = asked.expires_after(anchor, given, "expires_after")
    name = form["filename"]
    return File(0, upload.file_id, owner, "batch", name, upload.bytes, now, now + keep_s)


def too_large(rules: Batches) -> Refused:
    return Refused(413, "file_too_large", f"The file is over {rules.file} bytes.", "file")
