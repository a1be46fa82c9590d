"""HEAD, 204 and 304 have no body, whatever their headers say; the next answer stays complete."""

import pytest

from tests.harness.behaviours import answer_by, echo_of
from tests.harness.messages import json_response, request
from tests.harness.replica import Behaviour
from tests.harness.running import Router, routed, running, scenario


def first(data: bytes) -> Behaviour:
    """Answer `/odd` with these bytes and other paths properly."""
    return answer_by(
        lambda asked: data if asked.target == "/odd" else json_response(echo_of(asked))
    )


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
@scenario
async def test_no_body_by_status(data: bytes) -> None:
    async with running(first(data)) as router:
        client = await router.send(request("/odd"))
        got = await client.recv_response()
        assert got.status in (204, 304)
        assert got.complete
        assert got.body == b""
        if got.status == 204:
            assert got.header("content-length") is None
            assert got.header("transfer-encoding") is None
        await client.send(request("/next"))
        assert (await client.recv_response()).json()["target"] == "/next"


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", b"200 OK"), ("GET", b"204 No"), ("GET", b"304 Not Modified")]
)
@pytest.mark.parametrize("surplus", [b"hello", json_response({"poison": True})])
@scenario
async def test_bytes_after_the_response_belong_to_no_request(
    method: str, status: bytes, surplus: bytes
) -> None:
    """Bytes after an answer without a body close the connection."""
    data = b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\n" + surplus
    async with running(first(data)) as router:
        client = await router.send(request("/odd", method=method))
        assert (await client.recv_response(method)).complete
        await client.send(request("/next"))
        assert (await client.recv_response()).json()["target"] == "/next"
        assert b"hello" not in client.received
        assert len(router.replica.sessions) == 2


@routed(first(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"))
async def test_head_keeps_its_length_and_has_no_body(router: Router) -> None:
    client = await router.client()
    for _ in range(2):
        await client.send(request("/odd", method="HEAD"))
        got = await client.recv_response("HEAD")
        assert got.status == 200
        assert got.complete
        assert got.header("content-length") == "5"
    await client.send(request("/next"))
    assert (await client.recv_response()).json()["target"] == "/next"


@pytest.mark.parametrize("length", [None, "5"])
@pytest.mark.parametrize(
    ("method", "status", "framing"),
    [
        ("HEAD", "200 OK", ""),
        ("HEAD", "200 OK", "Transfer-Encoding: chunked\r\n"),
        ("HEAD", "404 Not Found", ""),
        ("GET", "304 Not Modified", ""),
    ],
)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@scenario
async def test_the_length_is_that_of_the_replica(
    method: str, status: str, framing: str, length: str | None, version: str
) -> None:
    """RFC 9110 section 8.6: `Content-Length: 0` would tell the client that the body is empty."""
    if length is not None:
        framing = f"Content-Length: {length}\r\n"
    data = f"HTTP/1.1 {status}\r\n{framing}\r\n".encode()
    async with running(first(data)) as router:
        client = await router.client()
        kept = ("Connection: keep-alive",) if version == "1.0" else ()
        for _ in range(2):  # over the same connection
            await client.send(request("/odd", *kept, method=method, version=version))
            got = await client.recv_response(method)
            assert (got.status, got.complete) == (int(status[:3]), True)
            assert got.header("content-length") == length
            assert got.header("transfer-encoding") is None


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
)
@scenario
async def test_head_answered_with_a_body(data: bytes) -> None:
    async with running(first(data)) as router:
        client = await router.send(request("/odd", method="HEAD"))
        got = await client.recv_response("HEAD")
        assert got.status == 200
        await client.send(request("/next"))
        assert (await client.recv_response()).json()["target"] == "/next"
        assert b"hello" not in client.received
        assert len(router.replica.sessions) == 2
