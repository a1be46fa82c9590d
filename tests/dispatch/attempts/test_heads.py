"""The heads sent to replicas and clients, parsed by an independent parser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config.model import Limits
from router.dispatch.attempts.upstream_head import attempt_head, common_lines
from router.dispatch.response_head import interim_head, response_head, stream_head
from router.wire.http1.heads import RequestHead, ResponseHead
from router.wire.http1.request_reader import RequestReader
from router.wire.http1.response_reader import ResponseReader
from tests.harness.reading import Request, Response, read_response
from tests.harness.reading import RequestReader as Replica


def understood(data: bytes) -> tuple[RequestHead, bytes]:
    reader = RequestReader(Limits(), b"hedgerow", lambda head: None)
    reader.feed(data)
    return reader.head, b"".join(reader.take_body())


def forwarded(data: bytes, **options: Any) -> Request:
    """A client's request as a replica reads it."""
    head, body = understood(data)
    settings = {
        "peer": b"10.0.0.9",
        "peer_is_trusted": False,
        "proto": b"http",
        "via": b"hedgerow",
        "authorization": None,
        **options,
    }
    base = settings.pop("base_path", b"")
    index = settings.pop("index", 0)
    common = common_lines(head, len(body), **settings)
    replica = Replica()
    replica.feed(attempt_head(head, base, b"host: gpu-1:8000", common, b"rid", index) + body)
    assert replica.error is None
    assert len(replica.done) == 1
    return replica.done[0]


def request(*fields: str, start: str = "POST /v1/x?q=1 HTTP/1.1", body: bytes = b"") -> bytes:
    lines = [start, "Host: client.test", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def test_what_a_replica_gets() -> None:
    got = forwarded(
        request("Content-Type: application/json", "X-Own: 1", "Authorization: Bearer c", body=b"{}")
    )
    assert (got.method, got.target, bytes(got.body)) == ("POST", "/v1/x?q=1", b"{}")
    assert got.header("host") == "gpu-1:8000"
    assert got.header("content-length") == "2"
    assert got.header("via") == "1.1 hedgerow"
    assert got.header("x-forwarded-for") == "10.0.0.9"
    assert got.header("x-forwarded-proto") == "http"
    assert got.header("x-request-id") == "rid-0"
    assert got.header("x-own") == "1"
    assert got.header("authorization") == "Bearer c"
    assert got.header("connection") is None


def test_each_attempt_has_its_own_id_and_prefix() -> None:
    got = forwarded(request(), index=2, base_path=b"/engine")
    assert got.header("x-request-id") == "rid-2"
    assert got.target == "/engine/v1/x?q=1"


def test_chunks_become_a_length() -> None:
    data = request("Transfer-Encoding: chunked") + b"2\r\nhi\r\n1\r\n!\r\n0\r\nX-T: 1\r\n\r\n"
    got = forwarded(data)
    assert bytes(got.body) == b"hi!"
    assert got.header("content-length") == "3"
    assert got.header("transfer-encoding") is None
    empty = forwarded(request("Transfer-Encoding: chunked") + b"0\r\n\r\n")
    assert empty.header("content-length") == "0"


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS"])
def test_no_body_has_no_length(method: str) -> None:
    got = forwarded(request(start=f"{method} /a HTTP/1.1"))
    assert got.header("content-length") is None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_an_empty_post_says_so(method: str) -> None:
    got = forwarded(request(start=f"{method} /a HTTP/1.1"))
    assert got.header("content-length") == "0"


SPOOFED = ("X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil")


def test_a_stranger_says_nothing_about_its_client() -> None:
    got = forwarded(request(*SPOOFED, "Forwarded: for=6.6.6.6"))
    assert got.header("x-forwarded-for") == "10.0.0.9"
    assert got.header("x-forwarded-proto") == "http"
    assert got.header("x-forwarded-host") != "evil"
    assert got.header("forwarded") is None


def test_a_trusted_proxy_is_believed() -> None:
    got = forwarded(request(*SPOOFED), peer_is_trusted=True)
    assert got.header("x-forwarded-for") == "6.6.6.6, 10.0.0.9"
    assert got.header("x-forwarded-proto") == "https"
    assert got.header("x-forwarded-host") == "evil"


def test_a_token_of_ours_replaces_the_clients() -> None:
    got = forwarded(
        request("Authorization: Bearer client"), authorization=b"authorization: Bearer ours"
    )
    assert got.all("authorization") == ["Bearer ours"]


def test_via_grows() -> None:
    got = forwarded(request("Via: 1.1 a", "Via: 1.0 b (x)"))
    assert got.header("via") == "1.1 a, 1.0 b (x), 1.1 hedgerow"
    old = forwarded(request(start="POST / HTTP/1.0"))
    assert old.header("via") == "1.0 hedgerow"


NAMES = st.sampled_from(["X-A", "x-b", "Accept", "Cookie", "Connection", "X-Request-Id", "Via"])
TEXTS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(NAMES, TEXTS), max_size=12), st.binary(max_size=50))
def test_whatever_is_accepted_is_read_alike_behind_us(
    fields: list[tuple[str, str]], body: bytes
) -> None:
    try:
        got = forwarded(request(*(f"{name}: {value}" for name, value in fields), body=body))
    except Exception as err:
        assert type(err).__name__ == "RouterError"
        return
    assert bytes(got.body) == body
    for name in ("host", "via", "x-forwarded-for", "x-request-id", "content-length"):
        assert got.header(name) is not None
    assert got.header("connection") is None


# -- to clients -----------------------------------------------------------------------------


def head_of(data: bytes, *, for_head: bool = False) -> ResponseHead:
    reader = ResponseReader(Limits(), for_head)
    reader.feed(data)
    assert reader.head is not None
    return reader.head


ENGINE = (
    b"HTTP/1.1 200 Fine\r\nServer: engine\r\nContent-Type: text/plain\r\nConnection: X-Own\r\n"
    b"X-Request-Id: theirs\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nhi"
)


def answered(data: bytes, method: str = "GET") -> Response:
    found = read_response(data, method)
    assert found is not None
    return found


def test_a_sized_response() -> None:
    head = head_of(ENGINE)
    data = response_head(head, b"rid", length=2, chunked=False, keep_alive=True) + b"hi"
    got = answered(data)
    assert data.startswith(b"HTTP/1.1 200 Fine\r\n")
    assert (got.status, bytes(got.body), got.complete) == (200, b"hi", True)
    assert got.header("server") == "engine"
    assert got.header("x-request-id") == "rid"
    assert got.header("content-length") == "2"
    assert got.header("connection") is None
    assert got.header("keep-alive") is None
    assert got.header("x-router-replica") is None


def test_a_chunked_response_and_one_that_closes() -> None:
    head = head_of(ENGINE)
    data = response_head(head, b"rid", length=None, chunked=True, keep_alive=False, replica="gpu-1")
    got = answered(data + b"2\r\nhi\r\n0\r\n\r\n")
    assert (bytes(got.body), got.complete) == (b"hi", True)
    assert got.header("connection") == "close"
    assert got.header("x-router-replica") == "gpu-1"
    cut = answered(data + b"2\r\nhi\r\n")
    assert not cut.complete


@pytest.mark.parametrize(
    "raw", [b"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n", b"HTTP/1.1 204\r\n\r\n"]
)
def test_no_length_in_204(raw: bytes) -> None:
    head = head_of(raw)
    got = answered(response_head(head, b"rid", length=None, chunked=False, keep_alive=True))
    assert (got.status, got.complete) == (204, True)
    assert got.header("content-length") is None


def test_the_length_of_304_and_head_is_kept() -> None:
    head = head_of(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n")
    got = answered(response_head(head, b"rid", length=7, chunked=False, keep_alive=True))
    assert (got.status, got.header("content-length"), got.complete) == (304, "7", True)
    head = head_of(ENGINE.removesuffix(b"hi"), for_head=True)
    data = response_head(head, b"rid", length=2, chunked=False, keep_alive=True)
    assert answered(data, "HEAD").header("content-length") == "2"


def test_an_interim_response() -> None:
    reader = ResponseReader(Limits())
    reader.feed(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: close\r\n\r\n")
    data = interim_head(reader.interim[0])
    assert data == b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"


@pytest.mark.parametrize("chunked", [True, False])
def test_the_head_of_a_stream_of_our_own(chunked: bool) -> None:
    data = stream_head(b"rid", chunked=chunked, keep_alive=chunked)
    got = answered(data + (b"2\r\nhi\r\n0\r\n\r\n" if chunked else b"hi"))
    assert (got.status, bytes(got.body)) == (200, b"hi")
    assert (got.header("content-type") or "").startswith("text/event-stream")
    assert got.header("x-request-id") == "rid"
    assert (got.header("connection") == "close") == (not chunked)
