"""The framing and the router's own fields in responses, and which bodies may be text."""

from typing import Any

import pytest

from router.config.model import Limits
from router.dispatch.response_head import interim_head, is_text, response_head, stream_head
from router.wire.http1.heads import ResponseHead
from router.wire.http1.response_reader import ResponseReader
from tests.harness.reading import Response, read_response


def a_head(*lines: bytes, **values: Any) -> ResponseHead:
    head = ResponseHead()
    head.status, head.status_line = 200, b"200 OK"
    head.lines = list(lines)
    head.joined = b"".join(b"\r\n" + line for line in lines)
    head.has_date = True
    for name, value in values.items():
        setattr(head, name, value)
    return head


def fields(head: ResponseHead, **options: Any) -> list[bytes]:
    settings: dict[str, Any] = {"length": 5, "chunked": False, "keep_alive": True, **options}
    data = response_head(head, b"rid", **settings)
    assert data.endswith(b"\r\n\r\n") and data.count(b"\r\n\r\n") == 1
    return data[:-4].split(b"\r\n")


def test_the_replicas_fields_stand_before_the_routers() -> None:
    assert fields(a_head(b"X-A: 1")) == [
        b"HTTP/1.1 200 OK",
        b"X-A: 1",
        b"x-request-id: rid",
        b"content-length: 5",
    ]


@pytest.mark.parametrize(
    ("options", "status", "framing"),
    [
        ({"length": 0}, 200, [b"content-length: 0"]),
        ({"length": None}, 200, []),
        ({"length": 5, "chunked": True}, 200, [b"transfer-encoding: chunked"]),
        ({"length": 5}, 204, []),  # RFC 9110 section 8.6: no Content-Length in a 204
        ({"length": 5}, 304, [b"content-length: 5"]),
        ({"keep_alive": False}, 200, [b"content-length: 5", b"connection: close"]),
        ({"http_1_0": True}, 200, [b"content-length: 5", b"connection: keep-alive"]),
        (
            {"http_1_0": True, "keep_alive": False},
            200,
            [b"content-length: 5", b"connection: close"],
        ),
        ({"replica": "gpu-1"}, 200, [b"content-length: 5", b"x-router-replica: gpu-1"]),
        ({"replica": "gpü"}, 200, [b"content-length: 5", b"x-router-replica: gp?"]),
        ({"region": "eu"}, 200, [b"content-length: 5", b"x-served-region: eu"]),
        (
            {"estimate": b"8; low=4; high=19"},
            200,
            [b"content-length: 5", b"x-ttft-estimate-ms: 8; low=4; high=19"],
        ),
    ],
)
def test_the_framing(options: dict[str, Any], status: int, framing: list[bytes]) -> None:
    assert fields(a_head(status=status), **options)[2:] == framing


def test_a_date_is_added_only_where_there_is_none() -> None:
    added = fields(a_head(has_date=False))
    assert [line.partition(b":")[0] for line in added[2:]] == [b"content-length", b"date"]
    kept = fields(a_head(b"Date: Mon, 01 Jan 2024 00:00:00 GMT"))
    assert [line for line in kept if line.lower().startswith(b"date:")] == kept[1:2]


def test_an_interim_head_has_the_replicas_fields_only() -> None:
    head = a_head(b"Link: </a>", status=103, status_line=b"103 Early Hints")
    assert interim_head(head) == b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    assert interim_head(a_head(status_line=b"100 Continue")) == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_stream_that_begins_before_its_replica() -> None:
    lines = stream_head(b"rid", chunked=False, keep_alive=True).split(b"\r\n")
    assert lines[2:4] == [b"cache-control: no-cache", b"x-accel-buffering: no"]
    assert lines[4].startswith(b"date: ") and lines[5] == b"x-request-id: rid"
    both = stream_head(b"rid", chunked=True, keep_alive=False)
    assert both.endswith(b"\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], True),  # without a Content-Type the body may be text
        ([b"X-A: image/png"], True),
        ([b"Content-Type: text/plain"], True),
        ([b"content-type:TEXT/HTML; charset=utf-8"], True),
        ([b"CONTENT-TYPE: application/x-ndjson"], True),
        ([b"Content-Type: application/problem+JSON"], True),
        ([b"Content-Type: audio/mpeg"], False),
        ([b"Content-Type: application/octet-stream"], False),
        ([b"Content-Type:"], False),
        ([b"Content-Type-X: text/plain", b"Content-Type: image/png"], False),
        ([b"Content-Type: image/png", b"Content-Type: text/plain"], False),  # the first counts
    ],
)
def test_whether_a_body_may_be_text(lines: list[bytes], text: bool) -> None:
    assert is_text(a_head(*lines)) == text


def test_what_the_reader_took_for_json_or_events_is_text() -> None:
    for kind in ("is_json", "is_sse"):
        assert is_text(a_head(b"Content-Type: image/png", **{kind: True}))


# Parsed by an independent parser.


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


def test_a_chunked_response_and_one_that_closes() -> None:
    head = head_of(ENGINE)
    data = response_head(head, b"rid", length=None, chunked=True, keep_alive=False, replica="gpu-1")
    got = answered(data + b"2\r\nhi\r\n0\r\n\r\n")
    assert (bytes(got.body), got.complete) == (b"hi", True)
    assert got.header("connection") == "close"
    assert got.header("x-router-replica") == "gpu-1"
    cut = answered(data + b"2\r\nhi\r\n")
    assert not cut.complete


def test_the_length_of_304_and_head_is_kept() -> None:
    head = head_of(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n")
    got = answered(response_head(head, b"rid", length=7, chunked=False, keep_alive=True))
    assert (got.status, got.header("content-length"), got.complete) == (304, "7", True)
    head = head_of(ENGINE.removesuffix(b"hi"), for_head=True)
    data = response_head(head, b"rid", length=2, chunked=False, keep_alive=True)
    assert answered(data, "HEAD").header("content-length") == "2"


@pytest.mark.parametrize("chunked", [True, False])
def test_the_head_of_a_stream_of_our_own(chunked: bool) -> None:
    data = stream_head(b"rid", chunked=chunked, keep_alive=chunked)
    got = answered(data + (b"2\r\nhi\r\n0\r\n\r\n" if chunked else b"hi"))
    assert (got.status, bytes(got.body)) == (200, b"hi")
    assert (got.header("content-type") or "").startswith("text/event-stream")
    assert got.header("x-request-id") == "rid"
    assert (got.header("connection") == "close") == (not chunked)
