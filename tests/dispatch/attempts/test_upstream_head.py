"""The header fields that a replica gets, byte for byte and as read by an independent parser."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.config.model import Limits
from router.dispatch.attempts.upstream_head import attempt_head, common_lines
from router.wire.http1.heads import Proxies, RequestHead
from router.wire.http1.request_reader import RequestReader
from tests.examples import examples
from tests.harness.reading import Request, RequestReader as Replica
from tests.wire.http1.heads import feed


def a_head(**values: Any) -> RequestHead:
    head = RequestHead()
    head.method = b"GET"
    head.proxies = Proxies()
    for name, value in values.items():
        setattr(head.proxies if hasattr(head.proxies, name) else head, name, value)
    return head


def lines(head: RequestHead, body_bytes: int = 0, **options: Any) -> list[bytes]:
    settings: dict[str, Any] = {
        "peer": b"10.0.0.9",
        "peer_is_trusted": False,
        "proto": b"http",
        "via": b"hedgerow",
        "authorization": None,
        **options,
    }
    common = common_lines(head, body_bytes, **settings)
    assert common.startswith(b"\r\n")
    return common[2:].split(b"\r\n")


OWN = [b"via: 1.1 hedgerow", b"x-forwarded-for: 10.0.0.9", b"x-forwarded-proto: http"]


def test_a_head_without_fields_gets_the_routers_own() -> None:
    assert lines(a_head()) == OWN


def test_the_clients_fields_come_first_and_its_via_grows() -> None:
    head = a_head(joined=b"\r\nX-A: 1\r\nx-a:  2", via=[b"1.1 a", b"1.0 b (x)"], http_1_0=True)
    via = b"via: 1.1 a, 1.0 b (x), 1.0 hedgerow"
    assert lines(head) == [b"X-A: 1", b"x-a:  2", via, *OWN[1:]]


CREDENTIALS = a_head(authorization=b"Authorization: Bearer client", api_key=b"x-api-key: client")


def test_the_clients_credentials_are_forwarded() -> None:
    found = lines(CREDENTIALS)
    assert found[:2] == [b"x-api-key: client", b"Authorization: Bearer client"]


def test_credentials_for_the_router_never_reach_a_replica() -> None:
    assert lines(CREDENTIALS, forwards_key=False) == OWN


def test_the_replicas_own_credential_replaces_the_clients() -> None:
    ours = b"authorization: Bearer ours"
    assert lines(CREDENTIALS, forwards_key=False, authorization=ours) == [ours, *OWN]
    found = lines(CREDENTIALS, authorization=ours)
    assert ours in found and b"Authorization: Bearer client" not in found


TOLD = a_head(
    forwarded_for=b"192.0.2.1",
    forwarded_other=[b"Forwarded: proto=https", b"X-Forwarded-Host: api.test"],
    host=b"inner.test",
)


def test_a_trusted_proxy_that_states_protocol_and_host_is_not_contradicted() -> None:
    assert lines(TOLD, peer_is_trusted=True) == [
        b"Forwarded: proto=https",
        b"X-Forwarded-Host: api.test",
        b"via: 1.1 hedgerow",
        b"x-forwarded-for: 192.0.2.1, 10.0.0.9",
    ]


def test_a_trusted_proxy_that_states_only_an_address() -> None:
    head = a_head(forwarded_for=b"192.0.2.1", host=b"api.test")
    assert lines(head, peer_is_trusted=True) == [
        b"via: 1.1 hedgerow",
        b"x-forwarded-for: 192.0.2.1, 10.0.0.9",
        b"x-forwarded-proto: http",
        b"x-forwarded-host: api.test",
    ]


def test_a_peer_that_is_not_trusted_states_nothing() -> None:
    assert lines(TOLD) == [*OWN, b"x-forwarded-host: inner.test"]


@pytest.mark.parametrize(
    ("method", "has_body", "size", "length"),
    [
        (b"GET", False, 0, None),
        (b"GET", True, 0, b"content-length: 0"),
        (b"GET", True, 5, b"content-length: 5"),
        (b"POST", False, 0, b"content-length: 0"),
        (b"DELETE", False, 0, None),
    ],
)
def test_a_length_stands_wherever_a_body_may(
    method: bytes, has_body: bool, size: int, length: bytes | None
) -> None:
    found = lines(a_head(method=method, has_body=has_body), size)
    assert found == ([*OWN, length] if length else OWN)


def test_the_head_of_an_attempt() -> None:
    head = a_head(method=b"POST", target=b"/v1/x?q=1")
    made = attempt_head(head, b"/base", b"host: gpu-1", b"\r\nvia: 1.1 r", b"name", 3)
    assert made == (
        b"POST /base/v1/x?q=1 HTTP/1.1\r\nhost: gpu-1\r\nvia: 1.1 r\r\nx-request-id: name-3\r\n\r\n"
    )


# Parsed by an independent parser.


def understood(data: bytes) -> tuple[RequestHead, bytes]:
    reader = RequestReader(Limits(), b"hedgerow")
    feed(reader, data)
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


def test_chunks_become_a_length() -> None:
    data = request("Transfer-Encoding: chunked") + b"2\r\nhi\r\n1\r\n!\r\n0\r\nX-T: 1\r\n\r\n"
    got = forwarded(data)
    assert bytes(got.body) == b"hi!"
    assert got.header("content-length") == "3"
    assert got.header("transfer-encoding") is None
    empty = forwarded(request("Transfer-Encoding: chunked") + b"0\r\n\r\n")
    assert empty.header("content-length") == "0"


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


NAMES = st.sampled_from(["X-A", "x-b", "Accept", "Cookie", "Connection", "X-Request-Id", "Via"])


TEXTS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)


@examples(150)
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
