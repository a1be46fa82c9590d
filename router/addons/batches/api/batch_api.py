"""The endpoints of /v1/batches: create, list, show, cancel.

A request for a batch of another owner returns 404, as if the batch did not exist. Import only
through `server.py`: this module imports aiohttp.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from router.addons.batches.api import asked
from router.addons.batches.api.asked import Refused, json_answer, owner_of, secret_of
from router.addons.batches.api.shapes import batch_object, page
from router.addons.batches.ids import is_id, new_batch_id, new_file_id
from router.addons.batches.quota import check_quota, has_known_key, keyless_part
from router.addons.batches.run.runner import Runner
from router.addons.batches.secrets import Secret
from router.addons.batches.store.rows import COMPLETED, VALIDATING, Batch
from router.addons.batches.store.store import Store
from router.config.model import Batches
from router.core.clock import time
from router.core.disk.worker import Worker

PAGE: Final = (20, 100)  # number of entries on one page of a list: default and maximum
RESULT_FILES: Final = 2  # maximum number of result files per batch: output and errors
T = TypeVar("T")


class BatchApi:
    """The handlers of the endpoints. Await `settled` before the store is closed."""

    def __init__(self, store: Store, worker: Worker, runner: Runner, rules: Batches) -> None:
        self._store = store
        self._worker = worker
        self._runner = runner
        self._rules = rules
        self._acts: set[asyncio.Task[Any]] = set()

    def join(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/batches", self.create)
        router.add_get("/v1/batches", self.list, allow_head=False)
        router.add_get("/v1/batches/{id}", self.show, allow_head=False)
        router.add_post("/v1/batches/{id}/cancel", self.cancel)

    async def settled(self) -> None:
        """Waits for the actions that continue although their client has disconnected."""
        await asyncio.gather(*self._acts, return_exceptions=True)

    async def _whole(self, act: Coroutine[Any, Any, T]) -> T:
        """Runs an action to its end, even if the client that requested the action disconnects."""
        task = asyncio.create_task(act)
        self._acts.add(task)
        task.add_done_callback(self._acts.discard)
        return await asyncio.shield(task)

    async def create(self, request: web.Request) -> web.Response:
        wanted = asked.new_batch(await request.read())
        batch = await self._whole(self._begin(wanted, owner_of(request), secret_of(request)))
        return json_answer(batch_object(batch))

    async def _begin(self, wanted: asked.NewBatch, owner: str, secret: Secret | None) -> Batch:
        batch = await self._worker(self._add, wanted, owner, secret is not None)
        self._runner.begin(batch)
        if secret is not None:
            self._runner.met(owner, secret)
        return batch

    def _add(self, wanted: asked.NewBatch, owner: str, needs_secret: bool) -> Batch:
        store, rules = self._store, self._rules
        file_id = wanted.input_file_id
        file = store.file(owner, file_id) if is_id(file_id) else None
        if file is None:
            message = f"No such File object: {file_id[:64]}"
            raise Refused(404, "not_found", message, "input_file_id")
        if file.purpose != "batch":
            message = "The purpose of the input file must be batch."
            raise Refused(400, "invalid_purpose", message, "input_file_id")
        own, keyless, of_all = store.unfinished_of(owner)
        if own >= rules.unfinished:
            message = f"{rules.unfinished} of your batches are unfinished; more are not allowed."
            raise Refused(429, "too_many_batches", message)
        if of_all >= rules.unfinished_total:
            raise Refused(429, "too_many_batches", "The router has too many unfinished batches.")
        keyless_most = keyless_part(rules, rules.unfinished_total)
        if keyless >= keyless_most and not has_known_key(owner):
            message = "Clients without a known API key have too many unfinished batches."
            raise Refused(429, "too_many_batches", message)
        check_quota(rules, store.usage, owner, RESULT_FILES, 0)
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
                needs_secret=needs_secret,
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

    async def list(self, request: web.Request) -> web.Response:
        query = request.query
        limit = asked.limit_of(query, *PAGE)
        found = await self._worker(
            self._store.batches, owner_of(request), query.get("after"), limit + 1
        )
        return json_answer(
            page([batch_object(batch) for batch in found[:limit]], len(found) > limit)
        )

    async def show(self, request: web.Request) -> web.Response:
        return json_answer(batch_object(await self._batch(request)))

    async def cancel(self, request: web.Request) -> web.Response:
        batch = await self._batch(request)
        await self._whole(self._cancel(batch.number))
        batch = await self._worker(self._store.numbered, batch.number)
        if batch.cancelling_at is None:
            message = f"Cannot cancel a batch with status '{batch.status}'."
            raise Refused(409, "not_cancellable", message)
        return json_answer(batch_object(batch))

    async def _cancel(self, number: int) -> None:
        if await self._worker(self._store.cancel, number, int(time())):
            await self._runner.cancel(number)

    async def _batch(self, request: web.Request) -> Batch:
        batch_id = request.match_info["id"]
        found = None
        if is_id(batch_id):
            found = await self._worker(self._store.batch, owner_of(request), batch_id)
        if found is None:
            raise Refused(404, "not_found", f"No such Batch object: {batch_id[:64]}", "id")
        return found
