"""The endpoints of /v1/files: upload, list, show, delete, download.

A request for a file of another owner returns 404, as if the file did not exist. Files are written
and read in pieces, by the worker. Import only through `server.py`: this module imports aiohttp.
"""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import hdrs, web

from router.addons.batches.api import asked
from router.addons.batches.api.asked import Refused, json_answer, owner_of
from router.addons.batches.api.form import SLACK, Form
from router.addons.batches.api.shapes import file_object, page
from router.addons.batches.api.uploads import PIECE, Upload, described, receive, too_large
from router.addons.batches.ids import is_id
from router.addons.batches.store.blob_store import BlobStore
from router.addons.batches.store.rows import File
from router.addons.batches.store.store import Store
from router.config.model import Batches
from router.core.disk.worker import Worker
from router.observe.events import log_event

PAGE: Final = (100, 1000)  # number of entries on one page of a list: default and maximum


class FileApi:
    """The handlers of the endpoints."""

    def __init__(self, store: Store, blobs: BlobStore, worker: Worker, rules: Batches) -> None:
        self._store = store
        self._blobs = blobs
        self._worker = worker
        self._rules = rules

    def join(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/files", self.upload)
        router.add_get("/v1/files", self.list, allow_head=False)
        router.add_get("/v1/files/{id}", self.show, allow_head=False)
        router.add_delete("/v1/files/{id}", self.delete)
        router.add_get("/v1/files/{id}/content", self.content, allow_head=False)

    async def upload(self, request: web.Request) -> web.Response:
        length = request.content_length or 0
        if length > self._rules.file + SLACK:
            raise too_large(self._rules)
        content_type = request.headers.get(hdrs.CONTENT_TYPE, "")
        form = Form(content_type.encode("utf-8", "surrogateescape"))
        owner = owner_of(request)
        upload = Upload(self._store, self._blobs, self._rules, owner)
        try:
            await self._worker(upload.begin, length)
            await receive(request.content, form, upload, self._worker)
            file = described(form, upload, owner, self._rules)
            await self._worker(upload.keep, file)
        finally:
            await self._worker(upload.close)
        return json_answer(file_object(file))

    async def list(self, request: web.Request) -> web.Response:
        query = request.query
        limit = asked.limit_of(query, *PAGE)
        found = await self._worker(
            self._store.files,
            owner_of(request),
            query.get("after"),
            limit + 1,
            query.get("purpose"),
            asked.is_oldest_first(query),
        )
        return json_answer(page([file_object(file) for file in found[:limit]], len(found) > limit))

    async def show(self, request: web.Request) -> web.Response:
        return json_answer(file_object(await self._file(request)))

    async def delete(self, request: web.Request) -> web.Response:
        file = await self._file(request)
        user = await self._worker(self._remove, file.id)
        if user is not None:
            message = f"The file is the input of {user}, which is unfinished; cancel it first."
            raise Refused(409, "file_in_use", message)
        return json_answer({"id": file.id, "object": "file", "deleted": True})

    def _remove(self, file_id: str) -> str | None:
        user = self._store.user_of(file_id)
        if user is None:
            self._store.remove_file(file_id)
            self._blobs.remove(file_id)
        return user

    async def content(self, request: web.Request) -> web.StreamResponse:
        found = await self._file(request)
        file = self._blobs.reading(found.id)
        try:
            piece = await self._worker(file.read, PIECE)
            response = web.StreamResponse(
                headers={
                    "Content-Type": "application/octet-stream",
                    # A browser must never display a file that a client uploaded as a web page.
                    "Content-Disposition": "attachment",
                    "X-Content-Type-Options": "nosniff",
                }
            )
            response.content_length = found.bytes
            await response.prepare(request)
            while piece:
                await response.write(piece)
                try:
                    piece = await self._worker(file.read, PIECE)
                except OSError as err:
                    # An error response would become a part of the file. The client gets less than
                    # Content-Length, so it notices the error.
                    log_event(logging.ERROR, "the batch folder failed", error=str(err))
                    if request.transport is not None:
                        request.transport.abort()
                    break
            return response
        finally:
            await self._worker(file.close)

    async def _file(self, request: web.Request) -> File:
        file_id = request.match_info["id"]
        found = None
        if is_id(file_id):
            found = await self._worker(self._store.file, owner_of(request), file_id)
        if found is None:
            raise Refused(404, "not_found", f"No such File object: {file_id[:64]}", "id")
        return found
