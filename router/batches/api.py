"""The endpoints: what is asked, of whom, and what is answered. OpenAI's shapes, errors too.

Whatever belongs to somebody else does not exist: 404. Nothing is held whole but small JSON bodies;
files go to disk and come from it in pieces of `PIECE` bytes, through the worker.

Import only through `door.py`: this module pulls in aiohttp.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from time import time
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import BodyPartReader, hdrs, web

from router.batches import asked
from router.batches.asked import Refused
from router.batches.ids import is_id, new_batch_id, new_file_id, owner_of
from router.batches.rows import COMPLETED, VALIDATING, Batch, File
from router.batches.runner import Runner
from router.batches.shapes import batch_object, file_object, page
from router.batches.shelf import Draft, Shelf
from router.batches.store import Store
from router.batches.worker import Worker
from router.config.model import Batches
from router.observe.events import log_event

PIECE: Final = 256 * 1024
BODY_MAX: Final = 1024 * 1024  # of a JSON body
FIELD_MAX: Final = 1024  # of a form's text field
FORM_SLACK: Final = 64 * 1024  # what a form may weigh beside its file
UNFINISHED_MAX: Final = 1000  # batches of everybody
BATCHES_PAGE: Final = (20, 100)  # usual and most
FILES_PAGE: Final = (100, 1000)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_TYPES: Final = {404: "not_found_error", 429: "rate_limit_error"}
T = TypeVar("T")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """The handlers over one store."""

    def __init__(
        self, store: Store, shelf: Shelf, worker: Worker, runner: Runner, rules: Batches
    ) -> None:
        self._store = store
        self._shelf = shelf
        self._worker = worker
        self._runner = runner
        self._rules = rules
        self._acts: set[asyncio.Task[Any]] = set()

    async def settled(self) -> None:
        """Wait for what was begun and is finished without its client."""
        await asyncio.gather(*self._acts, return_exceptions=True)

    async def _whole(self, act: Coroutine[Any, Any, T]) -> T:
        """Something that must not end half-way because its client leaves."""
        task = asyncio.create_task(act)
        self._acts.add(task)
        task.add_done_callback(self._acts.discard)
        return await asyncio.shield(task)

    def build(self) -> web.Application:
        app = web.Application(client_max_size=BODY_MAX, middlewares=[_guard])
        app.on_response_prepare.append(_dress)
        app.router.add_post("/v1/files", self.upload)
        app.router.add_get("/v1/files", self.list_files, allow_head=False)
        app.router.add_get("/v1/files/{id}", self.show_file, allow_head=False)
        app.router.add_delete("/v1/files/{id}", self.delete_file)
        app.router.add_get("/v1/files/{id}/content", self.content, allow_head=False)
        app.router.add_post("/v1/batches", self.create)
        app.router.add_get("/v1/batches", self.list_batches, allow_head=False)
        app.router.add_get("/v1/batches/{id}", self.show_batch, allow_head=False)
        app.router.add_post("/v1/batches/{id}/cancel", self.cancel)
        return app

    # -- files --------------------------------------------------------------------------------

    async def upload(self, request: web.Request) -> web.Response:
        length = request.content_length or 0
        if length > self._rules.file + FORM_SLACK:
            raise self._too_large()
        if not request.content_type.startswith("multipart/form-data"):
            raise Refused(400, "bad_multipart", "A file comes as multipart/form-data.")
        await self._worker(self._shelf.check_room, length)
        file_id = new_file_id()
        draft = self._shelf.draft(file_id)
        try:
            await self._worker(draft.open)
            form = await self._take_form(request, draft)
            file = self._described(request, form, file_id, draft.bytes)
            await self._worker(self._keep, draft, file)
        finally:
            await self._worker(draft.drop)
        return _json(file_object(file))

    async def _take_form(self, request: web.Request, draft: Draft) -> dict[str, str]:
        """The form's text fields, `filename` for the file's own; its bytes go into the draft."""
        form: dict[str, str] = {}
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or part.name is None:
                raise Refused(400, "bad_multipart", "The form has a part without a name.")
            if any(name in part.headers for name in _ENCODED):
                raise Refused(400, "bad_multipart", "The parts of the form must not be encoded.")
            if part.name == "file":
                if "filename" in form:
                    raise Refused(400, "bad_multipart", "The form has more than one file.", "file")
                form["filename"] = asked.filename_of(part.filename)
                while piece := await part.read_chunk(PIECE):
                    if draft.bytes + len(piece) > self._rules.file:
                        raise self._too_large()
                    await self._worker(draft.write, piece)
            else:
                form[part.name] = await _field(part)
        return form

    def _described(
        self, request: web.Request, form: dict[str, str], file_id: str, size: int
    ) -> File:
        if "filename" not in form:
            raise Refused(400, "missing_required_parameter", "The form has no file.", "file")
        if form.get("purpose") != "batch":
            raise Refused(400, "invalid_purpose", "The purpose must be batch.", "purpose")
        now = int(time())
        keep_s = int(self._rules.retention_s)
        if "expires_after[seconds]" in form:
            seconds = form["expires_after[seconds]"]
            anchor = form.get("expires_after[anchor]", "")
            given = int(seconds) if seconds.isdecimal() and len(seconds) < 10 else 0
            keep_s = asked.expires_after(anchor, given, "expires_after")
        owner = _owner(request)
        return File(0, file_id, owner, "batch", form["filename"], size, now, now + keep_s)

    def _keep(self, draft: Draft, file: File) -> None:
        draft.keep()
        try:
            self._store.add_file(file)
        except BaseException:
            self._shelf.remove(file.id)
            raise

    def _too_large(self) -> Refused:
        return Refused(413, "file_too_large", f"The file is over {self._rules.file} bytes.", "file")

    async def list_files(self, request: web.Request) -> web.Response:
        query = request.query
        limit = asked.limit_of(query, *FILES_PAGE)
        found = await self._worker(
            self._store.files,
            _owner(request),
            query.get("after"),
            limit + 1,
            query.get("purpose"),
            asked.is_oldest_first(query),
        )
        return _json(page([file_object(file) for file in found[:limit]], len(found) > limit))

    async def show_file(self, request: web.Request) -> web.Response:
        return _json(file_object(await self._file(request)))

    async def delete_file(self, request: web.Request) -> web.Response:
        file = await self._file(request)
        user = await self._worker(self._remove, file.id)
        if user is not None:
            message = f"The file is the input of {user}, which is not over yet; cancel it first."
            raise Refused(409, "file_in_use", message)
        return _json({"id": file.id, "object": "file", "deleted": True})

    def _remove(self, file_id: str) -> str | None:
        user = self._store.user_of(file_id)
        if user is None:
            self._store.remove_file(file_id)
            self._shelf.remove(file_id)
        return user

    async def content(self, request: web.Request) -> web.StreamResponse:
        found = await self._file(request)
        file = self._shelf.reading(found.id)
        try:
            response = web.StreamResponse(
                headers={
                    "Content-Type": "application/octet-stream",
                    # A browser must never take what a client uploaded for a page of ours.
                    "Content-Disposition": "attachment",
                    "X-Content-Type-Options": "nosniff",
                }
            )
            response.content_length = found.bytes
            await response.prepare(request)
            while piece := await self._worker(file.read, PIECE):
                await response.write(piece)
            await response.write_eof()
            return response
        finally:
            await self._worker(file.close)

    async def _file(self, request: web.Request) -> File:
        file_id = request.match_info["id"]
        found = None
        if is_id(file_id):
            found = await self._worker(self._store.file, _owner(request), file_id)
        if found is None:
            raise Refused(404, "not_found", f"No such File object: {file_id[:64]}", "id")
        return found

    # -- batches ------------------------------------------------------------------------------

    async def create(self, request: web.Request) -> web.Response:
        wanted = asked.new_batch(await request.read())
        authorization = request.headers.get(hdrs.AUTHORIZATION)
        batch = await self._whole(self._begin(wanted, _owner(request), authorization))
        return _json(batch_object(batch))

    async def _begin(self, wanted: asked.NewBatch, owner: str, authorization: str | None) -> Batch:
        batch = await self._worker(self._add, wanted, owner, authorization)
        self._runner.begin(batch)
        return batch

    def _add(self, wanted: asked.NewBatch, owner: str, authorization: str | None) -> Batch:
        store = self._store
        file_id = wanted.input_file_id
        file = store.file(owner, file_id) if is_id(file_id) else None
        if file is None:
            message = f"No such File object: {file_id[:64]}"
            raise Refused(404, "not_found", message, "input_file_id")
        if file.purpose != "batch":
            message = "The purpose of the input file must be batch."
            raise Refused(400, "invalid_purpose", message, "input_file_id")
        own, of_all = store.unfinished_of(owner)
        if own >= self._rules.unfinished:
            message = f"{self._rules.unfinished} batches are not over yet; more must wait."
            raise Refused(429, "too_many_batches", message)
        if of_all >= UNFINISHED_MAX:
            raise Refused(429, "too_many_batches", "The router has too many batches to work on.")
        now = int(time())
        expiry = wanted.output_expires_after
        metadata = None
        if wanted.metadata is not None:
            metadata = msgspec.json.encode(wanted.metadata).decode()
        return store.add_batch(
            Batch(
                number=0,
                id=new_batch_id(),
                owner=owner,
                authorization=authorization,
                endpoint=wanted.endpoint,
                completion_window=wanted.completion_window,
                input_file=file.id,
                output_file=None,
                error_file=None,
                next_output=new_file_id(),
                next_error=new_file_id(),
                output_seconds=None if expiry is None else expiry.seconds,
                status=VALIDATING,
                ending=COMPLETED,
                metadata=metadata,
                errors=None,
                total=0,
                completed=0,
                failed=0,
                created_at=now,
                in_progress_at=None,
                expires_at=now + wanted.window_s,
                finalizing_at=None,
                completed_at=None,
                failed_at=None,
                expired_at=None,
                cancelling_at=None,
                cancelled_at=None,
            )
        )

    async def list_batches(self, request: web.Request) -> web.Response:
        query = request.query
        limit = asked.limit_of(query, *BATCHES_PAGE)
        found = await self._worker(
            self._store.batches, _owner(request), query.get("after"), limit + 1
        )
        return _json(page([batch_object(batch) for batch in found[:limit]], len(found) > limit))

    async def show_batch(self, request: web.Request) -> web.Response:
        return _json(batch_object(await self._batch(request)))

    async def cancel(self, request: web.Request) -> web.Response:
        batch = await self._batch(request)
        await self._whole(self._cancel(batch.number))
        batch = await self._worker(self._store.numbered, batch.number)
        if batch.cancelling_at is None:
            message = f"Cannot cancel a batch with status '{batch.status}'."
            raise Refused(409, "not_cancellable", message)
        return _json(batch_object(batch))

    async def _cancel(self, number: int) -> None:
        if await self._worker(self._store.cancel, number, int(time())):
            self._runner.cancel(number)

    async def _batch(self, request: web.Request) -> Batch:
        batch_id = request.match_info["id"]
        found = None
        if is_id(batch_id):
            found = await self._worker(self._store.batch, _owner(request), batch_id)
        if found is None:
            raise Refused(404, "not_found", f"No such Batch object: {batch_id[:64]}", "id")
        return found


_ENCODED: Final = (hdrs.CONTENT_ENCODING, hdrs.CONTENT_TRANSFER_ENCODING)


def _owner(request: web.Request) -> str:
    return owner_of(request.headers.get(hdrs.AUTHORIZATION))


async def _field(part: BodyPartReader) -> str:
    held = bytearray()
    while piece := await part.read_chunk(FIELD_MAX + 1):
        held += piece
        if len(held) > FIELD_MAX:
            message = f"The form's field {str(part.name)[:64]} is too long."
            raise Refused(400, "bad_multipart", message)
    return held.decode("utf-8", "replace")


@web.middleware
async def _guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every error is an answer, and every answer to one is JSON."""
    try:
        return await handler(request)
    except Refused as err:
        return _error(err.status, err.code, err.message, err.param)
    except web.HTTPException as err:
        if err.status < 400:
            raise
        code = err.reason.lower().replace(" ", "_")
        response = _error(err.status, code, err.reason)
        if isinstance(err, web.HTTPMethodNotAllowed):
            response.headers[hdrs.ALLOW] = err.headers[hdrs.ALLOW]
        return response
    except sqlite3.Error as err:
        log_event(logging.ERROR, "the batch store failed", error=str(err))
        if getattr(err, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            return _full()
        return _error(500, "storage_failed", "The router could not write this down.")
    except ConnectionError:
        return _error(499, "client_gone", "The client has left.")  # nobody reads it
    except OSError as err:
        log_event(logging.ERROR, "the batch folder failed", error=str(err))
        if err.errno in _FULL:
            return _full()
        return _error(500, "storage_failed", "The router could not use its folder.")
    except ValueError as err:  # how aiohttp says that a form is none
        return _error(400, "bad_multipart", f"The form cannot be read: {str(err)[:200]}.")
    except Exception as err:
        log_event(logging.ERROR, "a batch request failed", key=request.path, error=repr(err))
        return _error(500, "internal", "The router could not answer this; see its log.")


async def _dress(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.pop(hdrs.SERVER, None)
    name = request.headers.get("X-Request-Id")
    if name is not None:
        response.headers["X-Request-Id"] = name


def _full() -> web.Response:
    return _error(507, "storage_full", "The router has no room left for files.")


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def _error(status: int, code: str, message: str, param: str | None = None) -> web.Response:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return _json(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}, status
    )
