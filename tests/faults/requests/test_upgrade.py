"""An Upgrade is not served: a plain answer and a close, never a tunnel, never a forwarded byte."""

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import LAST_CHUNK, chunk, request
from tests.harness.running import Router, assert_error, routed, running, scenario

WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)
H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ")


@pytest.mark.parametrize("body", [None, b"abc"], ids=["bare", "with body"])
@routed(echo)
async def test_a_websocket_is_refused_and_closed(router: Router, body: bytes | None) -> None:
    client = await router.client()
    method = "GET" if body is None else "POST"
    await client.send(request("/v1/realtime", *WEBSOCKET, method=method, body=body))
    answer = await client.recv_response()
    assert answer.status == 426
    assert answer.error()["code"] == "upgrade_not_served"
    assert answer.header("connection") == "close, upgrade"
    await client.expect_silence_then_close()
    assert not router.replica.requests
    assert await router.reason() == "upgrade_not_served"


@pytest.mark.parametrize("body", [None, b"abc"], ids=["bare", "with body"])
@routed(echo)
async def test_h2c_is_refused_or_answered_plainly(router: Router, body: bytes | None) -> None:
    """RFC 9110 7.8: a server may ignore the upgrade; then it is an ordinary request with its
    body.
    """
    client = await router.client()
    method = "GET" if body is None else "POST"
    await client.send(request("/plain", *H2C, method=method, body=body), request("/next"))
    answer = await client.recv_response()
    assert answer.status in (200, 426)
    if answer.status == 200:
        assert answer.json()["body"] == (body or b"").decode()
    if answer.header("connection") == "close":
        await client.expect_close()
        assert not client.unread
    else:
        assert (await client.recv_response()).json()["target"] == "/next"
    for seen in router.replica.requests:
        assert not {"upgrade", "http2-settings"} & {name for name, _ in seen.headers}


@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.0", "h2c, unknown/2"])
@pytest.mark.parametrize("cut", [0, 1], ids=["one read", "two reads"])
@scenario
async def test_an_upgrade_with_a_chunked_body_is_ignored(protocol: str, cut: int) -> None:
    """JDK's HttpClient sends h2c with each first request. RFC 9110 7.8: it may be ignored."""
    fields = (*H2C[:1], f"Upgrade: {protocol}", *H2C[2:], "Transfer-Encoding: chunked")
    asked = request("/plain", *fields, method="POST"), chunk(b"abc") + LAST_CHUNK
    async with running(echo) as router:
        client = await router.client()
        for _ in range(2):
            await client.send_pieces(asked if cut else [b"".join(asked)])
            assert (await client.recv_response()).json()["body"] == "abc"
        await client.send(request("/plain", *fields, method="POST"), b"0\r\n", b"x" * 70_000)
        assert_error(await client.recv_response(), Reason.BAD_REQUEST)
        for seen in router.replica.requests:
            assert not {"upgrade", "http2-settings"} & {name for name, _ in seen.headers}


@routed(echo)
async def test_the_field_alone_asks_for_nothing(router: Router) -> None:
    """RFC 9110 7.8: without the connection option, an Upgrade field is not for this hop, and it is
    not forwarded.
    """
    answer = await router.ask(request("/plain", "Upgrade: websocket"))
    assert answer.status in (200, 426)
    for seen in router.replica.requests:
        assert seen.header("upgrade") is None
