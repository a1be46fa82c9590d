"""Files and batches through the real SDK, from upload to results."""

import asyncio
import json
from pathlib import Path

import openai
import pytest

from tests.addons.batches.app.helpers import held, open_door, records, results, sdk, submit, until
from tests.addons.batches.lines import jsonl, line, numbered
from tests.harness.behaviours import answer, json_ok
from tests.harness.client import RawClient
from tests.harness.messages import json_response
from tests.harness.replica import eventually
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


BROKEN = b'{"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":%b}'


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
async def test_what_keeps_failing_is_given_up(tmp_path: Path) -> None:
    behave = answer(json_response({"detail": "boom"}, 500))
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

    async with open_door(tmp_path / "b", held(go)) as router, sdk(router) as client:
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

    async with open_door(tmp_path / "b", held(go), batches={"concurrency": 4}) as router:
        async with sdk(router) as client:
            batch = await submit(client, numbered(100))
            await eventually(lambda: len(router.replica.requests) == 4, "the first lines")
        router.app.drain()
        await asyncio.sleep(0.1)  # no new lines start while the router drains
        go.set()
        await asyncio.wait_for(router.app.draining.done.wait(), 15)
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
