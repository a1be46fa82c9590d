"""Files and batches with several workers: one has the folder, and the others forward to it."""

import json
import os
import signal
from pathlib import Path

from tests.addons.needed import needs
from tests.faults.workers.test_workers import Workers, eventually_true, workers
from tests.harness.messages import request
from tests.harness.reading import Response
from tests.harness.running import long_scenario

pytestmark = needs("share", "batches")
LINE = b'{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"model":"m"}}\n'


async def send(one: Workers, data: bytes) -> Response:
    client = await one.router.send(data)
    try:
        return await client.recv_response("POST")
    finally:
        client.close()


def upload() -> bytes:
    parts = (
        b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
        + LINE
        + b"\r\n--x--\r\n"
    )
    kind = "Content-Type: multipart/form-data; boundary=x"
    return request("/v1/files", kind, "Connection: close", method="POST", body=parts)


@long_scenario
async def test_files_are_the_same_at_all_workers(tmp_path: Path) -> None:
    extra = f"batches: {{enabled: true, folder: {tmp_path / 'batches'}}}\n"
    async with workers(tmp_path, extra=extra) as one:
        for _ in range(6):  # Either worker may get a request.
            answer = await send(one, upload())
            assert answer.status == 200, answer.body
        assert await listed(one) == {6}
        os.kill(one.pids[0], signal.SIGKILL)
        os.kill(one.pids[1], signal.SIGKILL)
        await one.router.event_after(len(one.router.events), "ready")
        await eventually_true(one.both)
        assert await listed(one) == {6}


async def listed(one: Workers) -> set[int]:
    """How many files are listed, in several requests."""
    found = set()
    for _ in range(6):
        answer = await send(one, request("/v1/files", "Connection: close"))
        found.add(len(json.loads(answer.body)["data"]))
    return found
