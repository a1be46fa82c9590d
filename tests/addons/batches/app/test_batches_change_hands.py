"""A restart while a batch runs: no line is sent twice, none is lost, and the folder stays whole."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from openai import AsyncOpenAI

from tests.addons.batches.app.helpers import records, submit, until
from tests.addons.batches.lines import line, numbered
from tests.faults.restart.helpers import Restarting, is_alive, restarting
from tests.harness.messages import completion, request
from tests.harness.process import START_S
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import long_scenario

LINES, AT_ONCE = 12, 3
FIRST = json.dumps(line("r0")["body"]["messages"])


@asynccontextmanager
async def sdk(one: Restarting) -> AsyncIterator[AsyncOpenAI]:
    """A client that opens a new connection for each request, like a client that begins now."""
    url = f"http://127.0.0.1:{one.router.port}/v1"
    fields = {"Connection": "close"}
    async with AsyncOpenAI(
        base_url=url, api_key="key-1", max_retries=0, timeout=20, default_headers=fields
    ) as client:
        yield client


class Gate:
    """A replica that answers a line when `go` is set, and counts how often it gets each line."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.seen: Counter[str] = Counter()

    async def __call__(self, connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            self.seen[json.dumps(json.loads(request.body)["messages"])] += 1
            await self.go.wait()
            await connection.send(completion())


def batches(tmp_path: Path) -> str:
    folder = tmp_path / "batches"
    return f"batches: {{enabled: true, folder: {folder}, concurrency: {AT_ONCE}, disk_free: 0}}\n"


@long_scenario
async def test_a_batch_is_continued_by_the_new_process(tmp_path: Path) -> None:
    gate = Gate()
    async with restarting(tmp_path, gate, extra=batches(tmp_path)) as one, sdk(one) as client:
        batch = await submit(client, numbered(LINES))
        await eventually(lambda: gate.seen.total() == AT_ONCE, "lines in progress")
        assert (await one.router.restart())["message"] == "restarted"
        # The old process still has lines in progress, so it has the folder, and serves requests.
        assert (await client.batches.retrieve(batch.id)).status == "in_progress"
        second = await submit(client, numbered(1))
        await asyncio.sleep(0.3)
        assert gate.seen.total() == AT_ONCE
        gate.go.set()
        await until(client, second.id, "completed")
        batch = await until(client, batch.id)
        assert batch.status == "completed"
        found = await records(client, batch.output_file_id)
        assert {record["custom_id"] for record in found} == {f"r{n}" for n in range(LINES)}
        assert len(found) == LINES
    assert gate.seen.pop(FIRST) == 2  # in both batches
    assert set(gate.seen.values()) == {1}


@long_scenario
async def test_a_process_that_is_replaced_while_it_waits_for_the_folder(tmp_path: Path) -> None:
    gate = Gate()
    async with restarting(tmp_path, gate, extra=batches(tmp_path)) as one, sdk(one) as client:
        batch = await submit(client, numbered(LINES))
        await eventually(lambda: gate.seen.total() == AT_ONCE, "lines in progress")
        # The kept connection below is idle for as long as a process needs to start.
        text = one.config.read_text()
        one.config.write_text(text.replace("keep_alive: 5", f"keep_alive: {START_S}"))
        assert (await one.router.restart())["message"] == "restarted"
        kept = await one.router.client()  # a connection to the process in the middle
        await kept.send(request("/v1/models"))
        assert (await kept.recv_response()).status == 200
        assert (await one.router.restart())["message"] == "restarted"
        await one.router.next_event("draining")
        await kept.send(request(f"/v1/batches/{batch.id}", "Authorization: Bearer key-1"))
        assert (await kept.recv_response()).status == 200
        kept.close()
        gate.go.set()
        batch = await until(client, batch.id)
        assert batch.status == "completed"
        assert batch.request_counts is not None
        assert batch.request_counts.completed == LINES
    assert set(gate.seen.values()) == {1}


@long_scenario
async def test_an_upload_ends_at_the_old_process(tmp_path: Path) -> None:
    data = numbered(LINES)
    begin, end = upload(data)
    async with restarting(tmp_path, Gate(), extra=batches(tmp_path)) as one, sdk(one) as client:
        uploading = await one.router.client()
        await uploading.send(begin)
        await eventually(lambda: any((tmp_path / "batches" / "files").iterdir()), "the draft")
        old = one.router.pid
        assert (await one.router.restart())["message"] == "restarted"
        assert (await client.files.list()).data == []
        await uploading.send(end)
        assert (await uploading.recv_response("POST")).status == 200
        uploading.close()
        (file,) = (await client.files.list()).data
        assert (await client.files.content(file.id)).content == data
        await eventually(lambda: not is_alive(old), "the end of the old process", START_S)
        (file,) = (await client.files.list()).data
        assert (await client.files.content(file.id)).content == data


def upload(data: bytes) -> tuple[bytes, bytes]:
    """The request that uploads a file, in two parts."""
    form = (
        b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--b\r\ncontent-disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
        b"%b\r\n--b--\r\n" % data
    )
    head = (
        b"POST /v1/files HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer key-1\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n" % len(form)
    )
    half = len(form) // 2
    return head + form[:half], form[half:]
