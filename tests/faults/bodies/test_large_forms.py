"""Large forms are forwarded completely, parsed while they arrive, and not copied for parsing."""

import tracemalloc

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import chunk, request
from tests.harness.running import assert_error, running, scenario

MIB = 1024 * 1024
PATH = "/v1/audio/transcriptions"
KIND = "Content-Type: multipart/form-data; boundary=b"


def part(name: str, value: bytes) -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + value + b"\r\n"


@pytest.mark.parametrize("path", [PATH, "/v1/x"])
@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("dense", [b"x", b"\r\n--", b"\r"])
@scenario
async def test_the_model_behind_a_large_file(path: str, is_chunked: bool, dense: bytes) -> None:
    body = part("file", dense * (3 * MIB // len(dense))) + part("model", b"m") + b"--b--\r\n"
    async with running(json_ok) as router:
        if is_chunked:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: a\r\n{KIND}\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            data = head.encode() + chunk(body[:MIB]) + chunk(body[MIB:]) + b"0\r\n\r\n"
        else:
            data = request(path, KIND, method="POST", body=body)
        answer = await router.ask(data, "POST")
        assert answer.status == 200, answer
        (seen,) = [r for r in router.replica.requests if r.method == "POST"]
        assert bytes(seen.body) == body
        assert (await router.log())[0]["model"] == "m"


@scenario
async def test_a_large_form_is_held_once() -> None:
    """The form has no end, so it is refused, but only after all of it has arrived."""
    size = 16 * MIB
    data = request(PATH, KIND, method="POST", body=part("file", b"x" * size))
    async with running(json_ok) as router:
        client = await router.client()
        tracemalloc.start()
        try:
            await client.send(data)
            assert_error(await client.recv_response("POST"), Reason.BAD_MULTIPART, 400)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1.5 * size
        assert router.app.census()["held_bytes"] == 0
