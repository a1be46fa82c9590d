"""TLS on both sides of the whole router."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from router.config.model import Tls, Upstream
from tests.harness.behaviours import chat_either, json_ok
from tests.harness.messages import chat, request
from tests.harness.over_tls import NAME, TlsClient, TlsReplica
from tests.harness.reading import Response
from tests.harness.replica import eventually
from tests.harness.running import running, scenario
from tests.places import CERT, CERTIFICATES, KEY


async def ask_over_tls(port: int, data: bytes) -> Response:
    """Send one request over TLS, and read the response and the end of the connection."""
    client = await TlsClient.connect(port)
    try:
        await client.send(data)
        found = await client.recv_response()
        await client.expect_close()
        return found
    finally:
        client.close()


@scenario
async def test_listening_with_tls() -> None:
    async with running(chat_either, tls=Tls(cert=CERT, key=KEY)) as router:
        found = await ask_over_tls(router.app.port, chat("Connection: close"))
        assert (found.status, found.complete) == (200, True)
        found = await ask_over_tls(router.app.port, chat("Connection: close", stream=True))
        assert found.events()[-1] == "[DONE]"
        asked = router.replicas[0].requests[0]
        assert asked.header("x-forwarded-proto") == "https"
        refused = await ask_over_tls(router.app.port, request("/metrics"))
        assert (refused.status, refused.complete) == (404, True)
        plain = await router.client()
        await plain.send(chat())
        await plain.expect_close()
        plain.close()
        await eventually(lambda: not router.app.parts.front.clients, "no client")


@scenario
async def test_a_new_certificate_is_read_by_a_reload(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text((CERTIFICATES / "other.pem").read_text())
    key.write_text((CERTIFICATES / "other.key").read_text())
    async with running(json_ok, tls=Tls(cert=str(cert), key=str(key))) as router:
        with pytest.raises(ssl.SSLError):
            await ask_over_tls(router.app.port, chat("Connection: close"))
        cert.write_text(Path(CERT).read_text())
        key.write_text(Path(KEY).read_text())
        await router.app.reload()
        assert (await ask_over_tls(router.app.port, chat("Connection: close"))).status == 200


@scenario
async def test_https_replicas() -> None:
    upstream = Upstream(ca_file=CERT, server_name=NAME, token="t-1")
    async with running(TlsReplica(json_ok), upstream=upstream) as router:
        for _ in range(3):
            assert (await router.ask()).status == 200
        (shown,) = router.app.replicas()
        assert shown["state"] == "ready"
        asked = router.replica.requests
        assert [head.header("authorization") for head in asked] == ["Bearer t-1"] * 3
        assert next(iter(router.app.parts.fleet.replicas.values())).pool.opened == 1
