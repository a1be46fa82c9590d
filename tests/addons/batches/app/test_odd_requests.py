"""Invalid requests for files and batches: each gets an error below 500 in OpenAI's format.

No invalid request is logged as an internal error of the router.
"""

from pathlib import Path
from typing import Any

import openai.types
import pytest

from tests.addons.batches.app.helpers import open_door, results, sdk, submit, until
from tests.addons.batches.lines import CHAT, jsonl, line
from tests.harness.behaviours import json_ok
from tests.harness.messages import post_json, request
from tests.harness.running import scenario

NEW = f'{{"input_file_id":"file-{0:032}","endpoint":"{CHAT}","completion_window":"24h"'.encode()
BODIES = [
    b"",
    b"null",
    b"[]",
    b'"x"',
    b"{}",
    b"\xff",
    b'{"a":"\xff"}',
    b"\xef\xbb\xbf{}",
    b"[" * 900_000,
    b'{"a":' * 150_000,
    b" " * 1_000_000,
    b"x" * 1_100_000,
    b'{"input_file_id":"\\ud800","endpoint":"/v1/chat/completions","completion_window":"24h"}',
    b'{"input_file_id":"x\\u0000","endpoint":"/v1/chat/completions","completion_window":"24h"}',
    b'{"input_file_id":"x","endpoint":"\\ud800","completion_window":"24h"}',
    b'{"input_file_id":"x","endpoint":"/v1/chat/completions","completion_window":"\\u0662h"}',
    b'{"input_file_id":"x","endpoint":"/v1/chat/completions","completion_window":"24h\\n"}',
    NEW + b',"metadata":{"\\ud800":"a"}}',
    NEW + b',"metadata":{"a":"\\udfff"}}',
    NEW + b',"metadata":{"a\\u0000":"\\r\\n"}}',
    NEW + b',"metadata":{' + b",".join(b'"%d":""' % n for n in range(90_000)) + b"}}",
    NEW + b',"output_expires_after":{"anchor":"created_at","seconds":1e999}}',
    NEW + b',"output_expires_after":{"anchor":"created_at","seconds":-0}}',
    NEW + b',"output_expires_after":{"anchor":"created_at","seconds":' + b"9" * 9999 + b"}}",
    NEW + b',"output_expires_after":{"anchor":"\\ud800","seconds":3600}}',
    NEW + b',"a":' + b"9" * 900_000 + b"}",
]
BROKEN_ID = b'{"custom_id": "\xff"}'
BROKEN_BODY = b'{"custom_id":"b","method":"POST","url":"%b","body":{"\xff":1}}' % CHAT.encode()
WORDS = [
    *("", "'", "%00", "%ff", "%ed%a0%80", "%", "%zz", "%2e%2e%2f", "%D9%A3", "-1", "1e3", "0x1"),
    *("+1", "%2B1", "9" * 4000, "x" * 6000, "file-" + "g" * 32, "%EF%BC%91"),
]


async def judged(folder: Path, asked: list[bytes], method: str, allowed: set[int]) -> None:
    async with open_door(folder, json_ok) as router:
        for data in asked:
            answer = await router.ask(data, method)
            assert answer.status in allowed, (data[:300], answer)
            if answer.status != 200:
                assert answer.error()["code"] not in ("internal", "storage_failed"), answer
        assert (await router.ask(request("/v1/files"))).status == 200


@scenario
async def test_bodies_of_batches(tmp_path: Path) -> None:
    asked = [post_json("/v1/batches", body) for body in BODIES]
    await judged(tmp_path, asked, "POST", {400, 404, 413})


@pytest.mark.parametrize("what", ["files", "batches"])
@scenario
async def test_lists(what: str, tmp_path: Path) -> None:
    names = ("after", "limit", "order", "purpose", "a", "")
    asked = [request(f"/v1/{what}?{name}={word}") for name in names for word in WORDS]
    asked.append(request(f"/v1/{what}?" + "&".join("limit=1" for _ in range(900))))
    await judged(tmp_path, asked, "GET", {200, 400})


@pytest.mark.parametrize("what", ["files", "batches"])
@scenario
async def test_names(what: str, tmp_path: Path) -> None:
    for method, tail in (("GET", ""), ("GET", "/content"), ("DELETE", ""), ("POST", "/cancel")):
        asked = [request(f"/v1/{what}/{word}{tail}", method=method) for word in WORDS]
        await judged(tmp_path, asked, method, {200, 400, 404, 405})


@scenario
async def test_a_malformed_file_fails_its_batch_with_line_numbers(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        no_text = BROKEN_ID, BROKEN_BODY
        data = jsonl(
            line("a"), b"{nonsense", {**line("b"), "url": "/v1/embeddings"}, line("a"), *no_text
        )
        batch = await until(client, (await submit(client, data)).id)
        assert batch.status == "failed"
        assert batch.failed_at is not None
        assert batch.errors is not None
        told = [(e.line, e.code) for e in batch.errors.data or []]
        assert told[:3] == [
            (2, "invalid_json_line"),
            (3, "invalid_url"),
            (4, "duplicate_custom_id"),
        ]
        assert [number for number, _ in told[3:]] == [5, 6]
        shown = await client.get(f"/batches/{batch.id}", cast_to=dict[str, Any])
        openai.types.Batch.model_validate(shown, strict=True)
        assert all(set(e) == {"code", "message", "param", "line"} for e in shown["errors"]["data"])
        assert batch.output_file_id is None
        assert batch.error_file_id is None
        assert router.replica.requests == []
        # A batch whose lines never ran does not hold its input file: the file may be removed.
        assert (await client.files.delete(batch.input_file_id)).deleted


@scenario
async def test_a_line_with_a_member_that_only_a_router_may_set(tmp_path: Path) -> None:
    lines = jsonl(line("a"), line("b", kv_transfer_params={"remote_host": "10.0.0.1"}))
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        batch = await until(client, (await submit(client, lines)).id)
        found = await results(client, batch)
        assert found["a"]["response"]["status_code"] == 200
        refused = found["b"]["response"]
        assert refused["status_code"] == 400
        assert refused["body"]["error"]["code"] == "private_member"
        assert not any(b"remote_host" in one.body for one in router.replica.requests)
