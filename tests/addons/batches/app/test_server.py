"""Files and batches through the real SDK, from upload to results."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import openai
import pytest

from tests.addons.batches.app.helpers import open_door, records, results, sdk, submit, until
from tests.addons.batches.lines import jsonl, line, numbered
from tests.harness.behaviours import json_ok
from tests.harness.client import RawClient
from tests.harness.messages import completion, json_response
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import scenario


@scenario
async def test_a_base_url_that_names_a_priority_leads_to_the_same_door(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        by_priority = client.with_options(base_url=f"http://127.0.0.1:{router.port}/v1/batch")
        batch = await submit(by_priority, numbered(3))
        assert (await until(client, batch.id)).status == "completed"
        assert {r.target for r in router.replica.requests if r.method == "POST"} == {
            "/v1/chat/completions"
        }


@scenario
async def test_a_batch_from_upload_to_results(tmp_path: Path) -> None:
    async with open_door(tmp_path / "b", json_ok) as router, sdk(router) as client:
        file = await client.files.create(file=("in.jsonl", numbered(30)), purpose="batch")
        assert (file.filename, file.purpose, file.bytes) == ("in.jsonl", "batch", len(numbered(30)))
        assert (await client.files.content(file.id)).content == numbered(30)
        batch = await client.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"team": "x"},
        )
        assert batch.status == "validating"
        assert batch.expires_at == batch.created_at + 24 * 3600
        batch = await until(client, batch.id)
        assert batch.status == "completed"
        assert batch.metadata == {"team": "x"}
        counts = batch.request_counts
        assert counts is not None
        assert (counts.total, counts.completed, counts.failed) == (30, 30, 0)
        assert batch.error_file_id is None
        output = await records(client, batch.output_file_id)
        assert [record["custom_id"] for record in output] == [f"r{n}" for n in range(30)]
        assert all(record["response"]["status_code"] == 200 for record in output)
        assert all(record["response"]["body"]["choices"] for record in output)
        assert all(record["error"] is None for record in output)
        result = await client.files.retrieve(batch.output_file_id or "")
        assert result.purpose == "batch_output"


BROKEN = b'{"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":%b}'


@pytest.mark.parametrize("bad", [b'{"custom_id": "\xff"}', BROKEN % b'{"\xff":1}'])
def test_a_byte_that_is_no_text_fails_its_batch_and_not_the_batch_api(
    bad: bytes, tmp_path: Path
) -> None:
    @scenario
    async def story() -> None:
        async with open_door(tmp_path / "b", json_ok) as router, sdk(router) as client:
            batch = await until(client, (await submit(client, jsonl(line("a"), bad))).id, "failed")
            assert batch.errors is not None
            assert [error.line for error in batch.errors.data or []] == [2]
            # The failed batch has released its place.
            batch = await submit(client, jsonl(line("a")))
            assert (await until(client, batch.id)).status == "completed"

    story()


@scenario
async def test_in_a_value_it_fails_its_line_only(tmp_path: Path) -> None:
    async with open_door(tmp_path / "b", json_ok) as router, sdk(router) as client:
        batch = await submit(client, jsonl(line("a"), BROKEN % b'{"model":"\xff"}'))
        batch = await until(client, batch.id, "completed")
        found = await results(client, batch)
        assert found["a"]["response"]["status_code"] == 200
        assert found["b"]["response"] is None or found["b"]["response"]["status_code"] == 400


@scenario
async def test_lines_are_ordinary_requests_of_their_owner(tmp_path: Path) -> None:
    async with open_door(tmp_path / "b", json_ok) as router, sdk(router, "key-7") as client:
        wanted = jsonl(line("a", priority="critical", seed=12345678901234567890, top_p=1.0))
        await until(client, (await submit(client, wanted)).id)
        (request,) = router.replica.requests
        assert request.target == "/v1/chat/completions"
        assert request.header("authorization") == "Bearer key-7"
        body = json.loads(bytes(request.body))
        assert body["priority"] != "critical"  # the engine gets the priority of a batch line
        assert b'"seed":12345678901234567890' in bytes(request.body).replace(b" ", b"")
        (logged,) = await router.log(kind="chat")
        assert logged["class"] == "batch"
        assert logged["id"].startswith("batch_req_")


@scenario
async def test_refusals_for_good_go_to_the_error_file(tmp_path: Path) -> None:
    async def refuse(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if b"bad" in bytes(request.body):
                await connection.send(json_response({"error": {"message": "no"}}, 400))
            else:
                await connection.send(completion())

    async with open_door(tmp_path / "b", refuse) as router, sdk(router) as client:
        batch = await submit(client, jsonl(line("good"), line("bad"), line("odd", model="other")))
        batch = await until(client, batch.id)
        assert batch.status == "completed"
        counts = batch.request_counts
        assert counts is not None
        assert (counts.total, counts.completed, counts.failed) == (3, 1, 2)
        errors = {e["custom_id"]: e for e in await records(client, batch.error_file_id)}
        assert errors["bad"]["response"]["status_code"] == 400
        assert errors["bad"]["response"]["body"] == {"error": {"message": "no"}}
        assert errors["odd"]["response"]["status_code"] == 404
        assert set(await results(client, batch)) == {"good", "bad", "odd"}


@scenario
async def test_a_busy_fleet_is_waited_for(tmp_path: Path) -> None:
    refused = 0

    async def behave(connection: ReplicaConnection) -> None:
        nonlocal refused
        while await connection.recv_request():
            if refused < 12:
                refused += 1
                await connection.send(json_response({}, 429, "Retry-After: 0"))
            else:
                await connection.send(completion())

    async with (
        open_door(tmp_path / "b", behave, batches={"attempts": 1}) as router,
        sdk(router) as client,
    ):
        batch = await until(client, (await submit(client, numbered(20))).id)
        assert batch.request_counts is not None
        assert batch.request_counts.completed == 20
        assert refused == 12


@scenario
async def test_what_keeps_failing_is_given_up(tmp_path: Path) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"detail": "boom"}, 500))

    async with (
        open_door(tmp_path / "b", behave, batches={"attempts": 2}, retry={"attempts": 1}) as router,
        sdk(router) as client,
    ):
        batch = await until(client, (await submit(client, numbered(1))).id)
        assert batch.request_counts is not None
        assert batch.request_counts.failed == 1
        (error,) = await records(client, batch.error_file_id)
        assert error["response"]["status_code"] == 500
        assert len(router.replica.requests) == 2


@scenario
async def test_lists_are_paged(tmp_path: Path) -> None:
    async with open_door(tmp_path / "b", json_ok) as router, sdk(router) as client:
        batches = [(await submit(client, numbered(1))).id for _ in range(5)]
        for batch_id in batches:
            await until(client, batch_id)
        page = await client.batches.list(limit=2)
        assert [batch.id for batch in page.data] == batches[:2:-1]
        assert page.has_more
        assert [batch.id async for batch in client.batches.list(limit=2)] == batches[::-1]
        inputs = [file.id async for file in client.files.list(purpose="batch", limit=2)]
        assert len(inputs) == len(set(inputs)) == 5
        backwards = [f.id async for f in client.files.list(purpose="batch", order="asc", limit=3)]
        assert backwards == inputs[::-1]
        assert len([file async for file in client.files.list()]) == 10
        with pytest.raises(openai.BadRequestError):
            await client.batches.list(limit=1000)


@scenario
async def test_files_are_deleted_but_not_under_a_batch(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await go.wait()
            await connection.send(completion())

    async with open_door(tmp_path / "b", behave) as router, sdk(router) as client:
        batch = await submit(client, numbered(2))
        with pytest.raises(openai.ConflictError) as refused:
            await client.files.delete(batch.input_file_id)
        assert refused.value.code == "file_in_use"
        go.set()
        batch = await until(client, batch.id)
        for file_id in (batch.input_file_id, batch.output_file_id or ""):
            assert (await client.files.delete(file_id)).deleted
            with pytest.raises(openai.NotFoundError):
                await client.files.content(file_id)
        assert list((tmp_path / "b" / "files").iterdir()) == []


@scenario
async def test_what_is_asked_wrongly_is_refused(tmp_path: Path) -> None:
    async with open_door(tmp_path / "b", json_ok) as router, sdk(router) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.files.create(file=b"{}", purpose="fine-tune")
        assert refused.value.param == "purpose"
        file = await client.files.create(file=numbered(1), purpose="batch")
        for status, fields in (
            (404, {"input_file_id": "file-0"}),
            (404, {"input_file_id": "../../etc/passwd"}),
            (400, {"endpoint": "/v1/nothing"}),
            (400, {"endpoint": "/v1/audio/transcriptions"}),
            (400, {"completion_window": "soon"}),
            (400, {"completion_window": "999h"}),
            (400, {"metadata": {"k": "v" * 600}}),
        ):
            with pytest.raises(openai.APIStatusError) as err:
                await submit(client, b"", **{"input_file_id": file.id, **fields})
            assert err.value.status_code == status, fields
        for path in ("/v1/files/%2e%2e", "/v1/files/nope/content", "/v1/batches/batch_1"):
            response = await router.ask(f"GET {path} HTTP/1.1\r\nHost: r\r\n\r\n".encode())
            assert response.status in (400, 404), path
        response = await router.ask(b"PUT /v1/files HTTP/1.1\r\nHost: r\r\n\r\n", "PUT")
        assert response.status == 405
        assert [f.id async for f in client.files.list(purpose="batch")][-1] == file.id


@scenario
async def test_a_batch_that_is_over_cannot_be_cancelled(tmp_path: Path) -> None:
    async with open_door(tmp_path / "b", json_ok) as router, sdk(router) as client:
        batch = await until(client, (await submit(client, numbered(1))).id)
        with pytest.raises(openai.ConflictError):
            await client.batches.cancel(batch.id)


@scenario
async def test_counts_are_told(tmp_path: Path) -> None:
    async with open_door(tmp_path / "b", json_ok) as router, sdk(router) as client:
        await until(client, (await submit(client, jsonl(line("a"), line("b", model="x")))).id)
        admin = await RawClient.connect(router.app.admin_port)
        await admin.send(b"GET /metrics HTTP/1.1\r\nHost: r\r\n\r\n")
        text = bytes((await admin.recv_response()).body).decode()
        admin.close()
        assert 'hedgerow_batch_attempts_total{verdict="done"} 1.0' in text
        assert 'hedgerow_batch_attempts_total{verdict="failed"} 1.0' in text
        assert 'hedgerow_batches_under_way{what="lines"} 0.0' in text


@scenario
async def test_a_drain_finishes_lines_and_leaves_the_rest(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await go.wait()
            await connection.send(completion())

    async with open_door(tmp_path / "b", behave, batches={"concurrency": 4}) as router:
        async with sdk(router) as client:
            batch = await submit(client, numbered(100))
            await eventually(lambda: len(router.replica.requests) == 4, "the first lines")
        router.app.drain()
        await asyncio.sleep(0.1)  # no new lines start while the router drains
        go.set()
        await asyncio.wait_for(router.app.drained.wait(), 15)
        assert len(router.replica.requests) == 4
    async with open_door(tmp_path / "b", json_ok) as router, sdk(router) as client:
        batch = await until(client, batch.id)
        assert len(await results(client, batch)) == 100
        assert len(router.replica.requests) == 96


@scenario
async def test_without_the_door_the_paths_go_to_replicas(tmp_path: Path) -> None:
    async with open_door(tmp_path / "b", json_ok, batches={"enabled": False}) as router:
        response = await router.ask(b"GET /v1/files HTTP/1.1\r\nHost: r\r\n\r\n")
        assert response.status == 200
        assert router.replica.requests[0].target == "/v1/files"
        assert not (tmp_path / "b").exists()
