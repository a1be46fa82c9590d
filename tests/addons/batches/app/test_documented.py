"""OpenAI's documentation of files and batches: every field, and every status in its order."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import openai.types
import pytest
from openai import AsyncOpenAI

from tests.addons.batches.app.helpers import open_door, records, sdk, submit, until
from tests.addons.batches.lines import jsonl, line, numbered
from tests.harness.behaviours import json_ok
from tests.harness.messages import completion, json_response
from tests.harness.replica import ReplicaConnection
from tests.harness.running import scenario

FILE = {"id", "object", "bytes", "created_at", "expires_at", "filename", "purpose", "status"}
BATCH = {
    *("id", "object", "endpoint", "errors", "input_file_id", "completion_window", "status"),
    *("output_file_id", "error_file_id", "created_at", "in_progress_at", "expires_at"),
    *("finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at"),
    *("cancelled_at", "request_counts", "metadata"),
}
WAY = ("validating", "in_progress", "finalizing", "completed")


async def answered(client: AsyncOpenAI, path: str) -> dict[str, Any]:
    """The raw response, not the SDK's interpretation of it."""
    return dict(await client.get(path, cast_to=dict[str, Any]))


@scenario
async def test_a_file(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        file = await client.files.create(file=("in.jsonl", numbered(3)), purpose="batch")
        shown = await answered(client, f"/files/{file.id}")
        assert shown.keys() >= FILE
        openai.types.FileObject.model_validate(shown, strict=True)
        assert (shown["object"], shown["status"]) == ("file", "processed")
        assert (await client.files.wait_for_processing(file.id)).id == file.id
        deleted = await client.files.delete(file.id)
        assert (deleted.id, deleted.object, deleted.deleted) == (file.id, "file", True)
        listed = await answered(client, "/files")
        assert (listed["object"], listed["data"], listed["has_more"]) == ("list", [], False)


@scenario
async def test_a_batch_on_its_way(tmp_path: Path) -> None:
    async def refuse(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            await asyncio.sleep(0.01)
            if b"bad" in bytes(request.body):
                await connection.send(json_response({"error": {"message": "no"}}, 400))
            else:
                await connection.send(completion())

    async with open_door(tmp_path, refuse) as router, sdk(router) as client:
        wanted = jsonl(line("bad"), *(line(f"r{n}") for n in range(30)))
        made = await submit(client, wanted, metadata={"a": "b"})
        seen = [made.status]
        while seen[-1] != "completed":
            shown = await answered(client, f"/batches/{made.id}")
            assert shown.keys() >= BATCH
            openai.types.Batch.model_validate(shown, strict=True)
            if shown["status"] != seen[-1]:
                seen.append(shown["status"])
        assert seen == [status for status in WAY if status in seen]
        times = [shown[f"{name}_at"] for name in ("created", "in_progress", "finalizing")]
        times += [shown["completed_at"], shown["expires_at"]]
        assert times == sorted(times)
        none = ("failed_at", "expired_at", "cancelling_at", "cancelled_at", "errors")
        assert [shown[name] for name in none] == [None] * 5
        assert shown["metadata"] == {"a": "b"}
        assert shown["expires_at"] == shown["created_at"] + 24 * 3600
        assert shown["request_counts"] == {"total": 31, "completed": 30, "failed": 1}
        output = await records(client, shown["output_file_id"])
        (error,) = await records(client, shown["error_file_id"])
        for record in (*output, error):
            assert list(record) == ["id", "custom_id", "response", "error"]
            assert set(record["response"]) == {"status_code", "request_id", "body"}
            assert record["id"].startswith("batch_req_")
            assert record["error"] is None
        assert {record["response"]["status_code"] for record in output} == {200}
        for record in output:
            openai.types.chat.ChatCompletion.model_validate(record["response"]["body"])
        assert [record["custom_id"] for record in output] == [f"r{n}" for n in range(30)]
        assert error["response"]["status_code"] == 400
        assert error["response"]["body"] == {"error": {"message": "no"}}
        with pytest.raises(openai.ConflictError):  # a batch that is over
            await client.batches.cancel(made.id)
        names = [
            (await client.files.retrieve(shown[f"{what}_file_id"])).filename
            for what in ("output", "error")
        ]
        assert names == [f"{made.id}_output.jsonl", f"{made.id}_error.jsonl"]


@scenario
async def test_results_expire_when_they_were_to(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        expiry = {"anchor": "created_at", "seconds": 7200}
        made = await submit(client, numbered(1), output_expires_after=expiry)
        batch = await until(client, made.id)
        file = await client.files.retrieve(batch.output_file_id or "")
        assert file.expires_at == file.created_at + 7200
