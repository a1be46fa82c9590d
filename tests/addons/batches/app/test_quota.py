"""Quotas of one owner (files, bytes, batches), and of all owners together."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from router.addons.batches.quota import Usage
from router.addons.batches.store.store import Store
from tests.addons.batches.app.helpers import held, open_door, sdk, submit, until
from tests.addons.batches.lines import numbered
from tests.addons.forms import MULTIPART, form
from tests.harness.behaviours import json_ok
from tests.harness.messages import chunk, request
from tests.harness.replica import eventually
from tests.harness.running import Router, scenario


async def refused(client: AsyncOpenAI, data: bytes) -> tuple[int, Any]:
    with pytest.raises(openai.APIStatusError) as err:
        await client.files.create(file=data, purpose="batch")
    assert err.value.body["message"]  # type: ignore[index]
    return err.value.status_code, err.value.code


def usage(router: Router) -> Usage:
    return router.app.parts.addons["batches"]._store.usage  # type: ignore[union-attr]


@scenario
async def test_bytes_of_one_owner(tmp_path: Path) -> None:
    async with (
        open_door(tmp_path, json_ok, batches={"bytes": 100_000}) as router,
        sdk(router, "one") as mine,
        sdk(router, "two") as theirs,
    ):
        first = await mine.files.create(file=b"x" * 60_000, purpose="batch")
        assert await refused(mine, b"x" * 40_001) == (403, "byte_quota_exceeded")
        await theirs.files.create(file=b"x" * 60_000, purpose="batch")
        second = await mine.files.create(file=b"x" * 40_000, purpose="batch")
        assert await refused(mine, b"x") == (403, "byte_quota_exceeded")
        await mine.files.delete(first.id)
        await mine.files.create(file=b"x" * 60_000, purpose="batch")
        assert (await mine.files.retrieve(second.id)).bytes == 40_000
        assert usage(router).bytes == 160_000


@scenario
async def test_files_of_one_owner_results_among_them(tmp_path: Path) -> None:
    async with (
        open_door(tmp_path, json_ok, batches={"files": 4}) as router,
        sdk(router, "one") as mine,
    ):
        batch = await until(mine, (await submit(mine, numbered(1))).id)
        assert usage(router).files == 2
        await mine.files.create(file=b"x", purpose="batch")
        last = await mine.files.create(file=b"x", purpose="batch")
        assert await refused(mine, b"x") == (403, "file_quota_exceeded")
        with pytest.raises(openai.PermissionDeniedError) as err:
            await mine.batches.create(
                input_file_id=batch.input_file_id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
            )
        assert err.value.code == "file_quota_exceeded"
        await mine.files.delete(last.id)
        await mine.files.create(file=b"x", purpose="batch")


@scenario
async def test_of_all_owners(tmp_path: Path) -> None:
    rules = {"files_total": 3, "bytes_total": 50_000, "unfinished_total": 2}
    go = asyncio.Event()

    async with (
        open_door(tmp_path, held(go), batches=rules) as router,
        sdk(router, "one") as mine,
        sdk(router, "two") as theirs,
    ):
        assert await refused(mine, b"x" * 50_001) == (507, "storage_full")
        first = await mine.files.create(file=numbered(1), purpose="batch")
        fields: Any = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batches = [await mine.batches.create(input_file_id=first.id, **fields)]
        second = await theirs.files.create(file=numbered(1), purpose="batch")
        # No space for the results of a second batch.
        with pytest.raises(openai.InternalServerError):
            await theirs.batches.create(input_file_id=second.id, **fields)
        await theirs.files.create(file=b"x", purpose="batch")
        assert await refused(mine, b"x") == (507, "storage_full")
        go.set()
        for batch in batches:
            # The work of the batch was done: its results are kept in spite of the quota.
            assert (await until(mine, batch.id)).output_file_id is not None
        assert usage(router).files == 4


@scenario
async def test_what_is_on_its_way_in_counts(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok, batches={"bytes": 500_000}) as router:
        auth = "Authorization: Bearer key-1"
        head = request("/v1/files", MULTIPART, auth, "Transfer-Encoding: chunked", method="POST")
        half = form(b"x" * 400_000)[:390_000]
        first, second = await router.client(), await router.client()
        await first.send(head + chunk(half))
        await eventually(lambda: usage(router).bytes > 250_000, "it counts while it comes")
        await second.send(head + chunk(half))
        answer = await second.recv_response("POST")
        assert (answer.status, answer.error()["code"]) == (403, "byte_quota_exceeded")
        second.close()
        first.rst()
        await eventually(lambda: not usage(router).bytes, "what was given up counts no more")
        assert usage(router).files == 0
        async with sdk(router) as client:
            await client.files.create(file=b"x" * 490_000, purpose="batch")


@scenario
async def test_files_expire_when_they_were_to(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        expiry: Any = {"anchor": "created_at", "seconds": 3600}
        short = await client.files.create(file=b"x", purpose="batch", expires_after=expiry)
        long = await client.files.create(file=b"x", purpose="batch")
        assert short.expires_at == short.created_at + 3600
        assert long.expires_at == long.created_at + 30 * 86400
        for wrong in ({"anchor": "created_at", "seconds": 1}, {"anchor": "now", "seconds": 3600}):
            with pytest.raises(openai.BadRequestError):
                await client.files.create(
                    file=b"x",
                    purpose="batch",
                    expires_after=wrong,  # type: ignore[arg-type]
                )
    store = Store(tmp_path / "batches.sqlite")
    store._db.execute("UPDATE files SET expires_at = 1 WHERE id = ?", (short.id,))
    store.close()
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        await eventually(lambda: usage(router).files == 1, "it is swept away")
        assert [file.id async for file in client.files.list()] == [long.id]
        assert [path.name for path in (tmp_path / "files").iterdir()] == [long.id]
