"""Uploads and downloads byte by byte: large, chunked, refused, broken off, stalled, slow."""

import asyncio
import errno
import gzip
import json
import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from router.addons.batches.api.uploads import PIECE
from router.addons.batches.store.blob_store import Reading
from router.config.model import Keys, Tls
from router.core.errors import Reason
from tests.addons.batches.api.test_form import WITHOUT_END
from tests.addons.batches.app.helpers import open_door, sdk, submit, until
from tests.addons.batches.lines import CHAT, numbered
from tests.addons.forms import EDGE, MULTIPART, form, part
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness.behaviours import json_ok
from tests.harness.client import RawClient
from tests.harness.messages import chunk, post_json, request
from tests.harness.process import serving, write_config
from tests.harness.replica import eventually, rest
from tests.harness.running import Router, assert_error, long_scenario, no_files_left, scenario
from tests.places import CERT, KEY

MiB = 1024 * 1024
VALIDATED_S = 60.0  # upper bound of the validation of a large file, in seconds


def files_in(folder: Path) -> list[Path]:
    return list((folder / "files").iterdir())


@scenario
async def test_a_file_larger_than_any_body_passes(tmp_path: Path) -> None:
    data = numbered(2000)
    async with (
        open_door(tmp_path, json_ok, limits={"body": 1024}) as router,
        sdk(router) as client,
    ):
        file = await client.files.create(file=data, purpose="batch")
        assert (await client.files.content(file.id)).content == data
        assert router.app.parts.front.held_bytes == 0


@scenario
async def test_a_compressed_upload_is_not_inflated(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router:
        body = gzip.compress(form(bytes(20 * MiB)))
        answer = await router.ask(
            request("/v1/files", MULTIPART, "Content-Encoding: gzip", method="POST", body=body)
        )
        assert (answer.status, answer.error()["code"]) == (415, "unsupported_encoding")
        assert files_in(tmp_path) == []


@scenario
async def test_a_chunked_upload_in_any_pieces(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router:
        client = await router.client()
        fields = (MULTIPART, "Transfer-Encoding: chunked", "Expect: 100-continue")
        body = form(numbered(3))
        await client.send(request("/v1/files", *fields, method="POST"))
        await client.recv_until(b"HTTP/1.1 100 Continue\r\n\r\n")
        await client.send_pieces(chunk(body[at : at + 7]) for at in range(0, len(body), 7))
        await client.send(b"0\r\n\r\n")
        response = await client.recv_response("POST")
        assert response.status == 200, response
        assert response.json()["bytes"] == len(numbered(3))
        assert response.header("connection") == "close"
        client.close()


@scenario
async def test_the_connection_may_have_served_before(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router:
        client = await router.client()
        upload = request("/v1/files", MULTIPART, method="POST", body=form(b"{}"))
        # Pipelined: one read contains the request for the models and the upload.
        await client.send(request("/v1/models") + upload)
        assert (await client.recv_response()).json()["object"] == "list"
        assert (await client.recv_response("POST")).status == 200
        await client.expect_close()
        lines = await router.log(2)
        assert [(entry["kind"], entry["reason"]) for entry in lines] == [
            ("models", "ok"),
            ("batches", "ok"),
        ]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@scenario
async def test_forms_as_curl_writes_them(tmp_path: Path) -> None:
    data = numbered(20_000)
    (tmp_path / "a;b.jsonl").write_bytes(data)
    async with open_door(tmp_path / "b", json_ok) as router:
        child = await asyncio.create_subprocess_exec(
            *("curl", "--silent", "--show-error", "--max-time", "20", "--noproxy", "*"),
            *("-F", "purpose=batch", "-F", f'file=@"{tmp_path}/a;b.jsonl"'),
            *("-F", "expires_after[anchor]=created_at", "-F", "expires_after[seconds]=3600"),
            f"http://127.0.0.1:{router.port}/v1/files",
            stdout=subprocess.PIPE,
        )
        said = json.loads((await child.communicate())[0])
        assert (said["bytes"], said["filename"]) == (len(data), "a;b.jsonl"), said
        assert said["expires_at"] - said["created_at"] == 3600


@scenario
async def test_a_file_over_the_limit_is_refused_while_it_comes(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok, batches={"file": 1000}) as router:
        # With a Content-Length, the size is known: the refusal comes before the body.
        client = await router.client()
        length = f"Content-Length: {64 * MiB}"
        await client.send(request("/v1/files", MULTIPART, length, method="POST"))
        response = await client.recv_response("POST")
        assert response.status == 413
        assert response.error()["code"] == "file_too_large"
        client.close()
        # Without a Content-Length, the refusal comes as soon as the body exceeds the limit.
        client = await router.client()
        chunked = "Transfer-Encoding: chunked"
        await client.send(request("/v1/files", MULTIPART, chunked, method="POST"))
        await client.send(chunk(form(b"x" * 400_000)[:300_000]))
        response = await client.recv_response("POST")
        assert response.status == 413
        client.close()
        await eventually(lambda: not files_in(tmp_path), "nothing stays of them")


@scenario
async def test_forms_that_are_none(tmp_path: Path) -> None:
    no_end = form(b"{}")[:-10]
    encoded = part("file", b"e30=", "Content-Transfer-Encoding: base64", filename="f")
    two = part("file", b"{}", filename="a") + part("file", b"{}", filename="b")
    end = f"--{EDGE}--\r\n".encode()
    cases: list[tuple[str, bytes]] = [
        ("Content-Type: application/json", b"{}"),
        ("Content-Type: multipart/form-data", form(b"{}")),  # the Content-Type has no boundary
        (MULTIPART, b"nothing of the kind"),
        (MULTIPART, no_end),
        (MULTIPART, encoded + part("purpose", b"batch") + end),
        (MULTIPART, two + part("purpose", b"batch") + end),
        (MULTIPART, part("purpose", b"batch") + end),
        (MULTIPART, part("file", b"{}", filename="f") + end),
        (MULTIPART, part("file", b"{}", filename="f") + part("purpose", b"b" * 5000) + end),
        (MULTIPART, form(b"{}", "assistants")),
    ]
    async with open_door(tmp_path, json_ok) as router:
        for content_type, body in cases:
            response = await router.ask(
                request("/v1/files", content_type, method="POST", body=body), "POST"
            )
            assert response.status == 400, (content_type, body, response)
            response.error()
        assert not files_in(tmp_path)


@scenario
async def test_a_client_that_leaves_in_the_middle(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router:
        for leave in (RawClient.close, RawClient.rst):
            client = await router.client()
            body = form(b"x" * 100_000)
            head = request("/v1/files", MULTIPART, f"Content-Length: {len(body)}", method="POST")
            await client.send(head + body[:50_000])
            await eventually(lambda: bool(files_in(tmp_path)), "a draft")
            leave(client)
            await eventually(lambda: not files_in(tmp_path), "the draft is gone")
        assert [entry["reason"] for entry in await router.log(2)] == ["client_gone"] * 2


@scenario
async def test_an_upload_that_stops_coming(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok, timeouts={"write_stall_s": 0.3}) as router:
        client = await router.client()
        head = request("/v1/files", MULTIPART, "Content-Length: 5000", method="POST")
        await client.send(head + form(b"x" * 4000)[:100])
        await client.expect_close()
        await eventually(lambda: not files_in(tmp_path), "the draft is gone")
        assert await router.reason() == "body_timeout"


@scenario
async def test_an_upload_that_drips(tmp_path: Path) -> None:
    slow = {"body_rate": 10_000.0, "body_rate_over_s": 0.2}
    async with open_door(tmp_path, json_ok, timeouts=slow) as router:
        client = await router.client()
        head = request("/v1/files", MULTIPART, "Content-Length: 5000", method="POST")
        await client.send(head + form(b"|").partition(b"|")[0])
        try:
            async with asyncio.timeout(5):
                while True:
                    await client.send(b"x")
                    await asyncio.sleep(0.01)
        except OSError:
            pass
        assert await router.reason() == "body_timeout"


@scenario
async def test_an_old_client_is_understood(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router:
        body = form(numbered(1))
        old = request("/v1/files", MULTIPART, method="POST", body=body, version="1.0")
        response = await router.ask(old, "POST")
        assert (response.status, response.complete) == (200, True)
        auth = "Authorization: none"
        response = await router.ask(request("/v1/files", auth, version="1.0"))
        assert response.json()["data"] == []
        assert response.header("transfer-encoding") is None


async def upload(router: Router, data: bytes) -> str:
    async with sdk(router) as client:
        return (await client.files.create(file=data, purpose="batch")).id


@scenario
async def test_a_slow_reader_is_waited_for_and_not_held(tmp_path: Path) -> None:
    data = b"x" * (32 * MiB)
    async with open_door(tmp_path, json_ok) as router:
        file_id = await upload(router, data)
        client = await router.client(receive_buffer=4096)
        auth = "Authorization: Bearer key-1"
        await client.send(request(f"/v1/files/{file_id}/content", auth))
        await client.recv_head()
        (tunnel,) = router.app.parts.dispatcher.tunnels
        before = -1
        while before != tunnel.bytes_out:  # until the number of sent bytes stays the same
            before = tunnel.bytes_out
            await rest(0.1)
        assert before < 12 * MiB  # the size of the kernel's buffers and of the router's
        got = await client.recv_exactly(len(data))
        assert got == data
        client.close()


@scenario
async def test_a_reader_that_stops_at_the_end_is_disconnected(tmp_path: Path) -> None:
    """The batch server has written the whole file and has closed, but the client reads nothing."""
    data = b"x" * (16 * MiB)  # more than the kernel's buffers take
    rules = {"limits": {"write_high": 2 * len(data)}, "timeouts": {"write_stall_s": 0.5}}
    async with open_door(tmp_path, json_ok, **rules) as router:
        file_id = await upload(router, data)
        client = await router.client(receive_buffer=4096)
        auth = "Authorization: Bearer key-1"
        await client.send(request(f"/v1/files/{file_id}/content", auth))
        await client.recv_head()
        (logged,) = [entry for entry in await router.log(2) if entry["path"].endswith("/content")]
        assert (logged["reason"], router.app.parts.dispatcher.tunnels) == ("ok", set())
        assert router.busy()["clients"] == 1, "unsent bytes"
        await eventually(lambda: not router.busy().get("clients"), "the client is disconnected")
        client.close()


@scenario
@pytest.mark.parametrize("sent", [0, 1])
async def test_the_disk_fails_during_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    data = b"x" * (sent + 1) * PIECE
    read, reads = Reading.read, 0

    def failing(self: Reading, size: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads > sent:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(self, size)

    async with open_door(tmp_path, json_ok) as router:
        file_id = await upload(router, data)
        monkeypatch.setattr(Reading, "read", failing)
        auth = "Authorization: Bearer key-1"
        response = await router.ask(request(f"/v1/files/{file_id}/content", auth))
        if sent == 0:
            assert (response.status, response.error()["code"]) == (500, "storage_failed")
        else:
            assert (response.status, response.complete) == (200, False)
            assert set(response.body) == {ord("x")}, "an error response inside the file"
        reason = "ok" if sent == 0 else "internal"
        assert [entry["reason"] for entry in await router.log(2)] == ["ok", reason]


@scenario
async def test_a_file_that_was_cut_short_on_disk(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router:
        file_id = await upload(router, b"x" * 1000)
        os.truncate(tmp_path / "files" / file_id, 999)
        auth = "Authorization: Bearer key-1"
        response = await router.ask(request(f"/v1/files/{file_id}/content", auth))
        assert (response.status, response.complete, len(response.body)) == (200, False, 999)
        response = await router.ask(request("/v1/files", auth, method="HEAD"), "HEAD")
        assert response.status == 405
        reasons = [entry["reason"] for entry in await router.log(3)]
        assert reasons == ["ok", "internal", "ok"]


@scenario
async def test_over_tls(tmp_path: Path) -> None:
    """Files are transferred over TLS; the requests of batch lines stay inside the process, without
    TLS.
    """
    trust = ssl.create_default_context(cafile=CERT)
    trust.check_hostname = False
    tls = Tls(cert=CERT, key=KEY)
    async with open_door(tmp_path, json_ok, tls=tls) as router:
        http = DefaultAsyncHttpxClient(verify=trust)
        url = f"https://127.0.0.1:{router.port}/v1"
        async with AsyncOpenAI(
            base_url=url, api_key="k", http_client=http, max_retries=0
        ) as client:
            batch = await until(client, (await submit(client, numbered(20))).id)
            assert batch.request_counts is not None
            assert batch.request_counts.completed == 20
            large = b"x" * (4 * MiB)
            file = await client.files.create(file=large, purpose="batch")
            assert (await client.files.content(file.id)).content == large


@long_scenario
async def test_memory_does_not_follow_the_size_of_a_file(tmp_path: Path) -> None:
    size = 200 * MiB
    config = tmp_path / "config.yaml"
    extra = f"batches: {{enabled: true, folder: '{tmp_path / 'b'}', disk_free: 0}}\n"
    write_config(config, "http://127.0.0.1:1", extra=extra)
    async with serving(config) as process:
        before = peak_bytes(process.child.pid)
        head, tail = form(b"|").split(b"|")
        length = f"Content-Length: {size + len(head) + len(tail)}"
        client = await process.send(request("/v1/files", MULTIPART, length, method="POST") + head)
        line = numbered(1)[:-3].ljust(MiB - 3) + b"}}\n"
        assert len(line) == MiB
        for _ in range(size // MiB):
            await client.send(line)
        await client.send(tail)
        response = await client.recv_response("POST")
        assert response.status == 200, response
        assert response.json()["bytes"] == size
        client.close()
        client = await process.client()
        wanted = {"input_file_id": response.json()["id"], "endpoint": CHAT}
        await client.send(post_json("/v1/batches", {**wanted, "completion_window": "24h"}))
        batch = (await client.recv_response("POST")).json()
        client.close()
        async with asyncio.timeout(VALIDATED_S):
            while batch["status"] == "validating":
                client = await process.send(request(f"/v1/batches/{batch['id']}"))
                batch = (await client.recv_response()).json()
                client.close()
                await asyncio.sleep(0.05)
        # all custom_ids are the same, which shows that the file was read
        assert batch["status"] == "failed"
        assert peak_bytes(process.child.pid) - before < 48 * MiB


def peak_bytes(pid: int) -> int:
    for text in Path(f"/proc/{pid}/status").read_text().splitlines():
        if text.startswith("VmHWM:"):
            return int(text.split()[1]) * 1024
    raise AssertionError("no VmHWM")


@scenario
async def test_no_file_descriptor_is_left(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok) as router:
        client = await router.client()
        await eventually(lambda: router.busy().get("clients") == 1, "an accepted client")
        with no_files_left():
            await client.send(request("/v1/files"))
            assert_error(await client.recv_response(), Reason.NO_FILES)
        assert (await router.ask(request("/v1/files"))).status == 200
        assert [entry["reason"] for entry in await router.log(2)] == ["no_files", "ok"]


@scenario
async def test_unfinished_uploads_leave_connections_for_others(tmp_path: Path) -> None:
    """Each of them takes the places of two connections, and there are few of them at once."""
    async with open_door(tmp_path, json_ok, limits={"connections": 64}) as router:
        front = router.app.parts.front
        start = request("/v1/files", MULTIPART, "Content-Length: 10000", method="POST")
        uploads = [await router.client() for _ in range(12)]
        for upload in uploads:
            await upload.send(start)
        for upload in uploads[8:]:
            assert_error(await upload.recv_response("POST"), Reason.NO_FILES)
        assert front.soft_clients == 64 - 64 // 16 - 8
        assert (await router.ask()).status == 200
        for upload in uploads:
            upload.close()
        await eventually(lambda: front.soft_clients == 64 - 64 // 16, "the places are free")
        answer = await router.ask(request("/v1/files"))
        assert answer.status == 200


@scenario
async def test_clients_without_a_key_get_half_of_the_uploads(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme()))
    async with open_door(tmp_path / "b", json_ok, keys=keys, limits={"connections": 64}) as router:
        start = request("/v1/files", MULTIPART, "Content-Length: 10000", method="POST")
        for _ in range(4):
            await (await router.client()).send(start)
        await eventually(lambda: len(router.app.parts.dispatcher.tunnels) == 4, "they have begun")
        assert_error(await router.ask(request("/v1/files")), Reason.NO_FILES)
        assert (await router.ask(request("/v1/files", BEARER))).status == 200


ANNOUNCED = f"Content-Length: {64 * 1024 * 1024}"
SENT = 256 * 1024


@pytest.mark.parametrize("name", ["lines before", "a field", "bytes behind the end"])
@scenario
async def test_it_is_refused_before_its_end(name: str, tmp_path: Path) -> None:
    start, filler = WITHOUT_END[name]
    async with open_door(tmp_path, json_ok) as router:
        client = await router.send(
            request("/v1/files", MULTIPART, ANNOUNCED, method="POST") + start
        )
        await client.send(filler * (SENT // len(filler)))
        response = await client.recv_response("POST")
        assert (response.status, response.error()["code"]) == (400, "bad_multipart")
        client.close()
        await eventually(lambda: not files_in(tmp_path), "nothing stays of it")
