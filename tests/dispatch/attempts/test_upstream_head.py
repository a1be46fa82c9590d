"""Which fields a replica gets, byte for byte, and whose credentials."""

from __future__ import annotations

from typing import Any

import pytest

from router.dispatch.attempts.upstream_head import attempt_head, common_lines
from router.wire.http1.heads import RequestHead


def a_head(**values: Any) -> RequestHead:
    head = RequestHead()
    head.method = b"GET"
    for name, value in values.items():
        setattr(head, name, value)
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


def test_the_clients_fields_come_first_and_unchanged() -> None:
    head = a_head(joined=b"\r\nX-A: 1\r\nx-a:  2", host=b"api.test")
    assert lines(head) == [b"X-A: 1", b"x-a:  2", *OWN, b"x-forwarded-host: api.test"]


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
