"""TLS on both sides of the whole router."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Admin, AdminTls, Tls, Upstream
from router.core.errors import ConfigError
from tests.harness.behaviours import chat_either, json_ok
from tests.harness.messages import chat, request
from tests.harness.over_tls import NAME, OTHER_CERT, TlsClient, TlsReplica
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


async def asked(port: int, *, presents: str | None = None) -> bool:
    """Whether the port has the certificate of one.test and answers a request.

    `presents`: the name of the certificate that the client has.
    """
    context = ssl.create_default_context(cafile=CERT)
    if presents is not None:
        context.load_cert_chain(CERTIFICATES / f"{presents}.pem", CERTIFICATES / f"{presents}.key")
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=NAME
        )
        writer.write(request("/health", "Connection: close"))
        found = await reader.read()
        writer.close()
        await writer.wait_closed()
        return found.startswith(b"HTTP/1.1 200")
    except (ssl.SSLError, ConnectionError):
        return False


class Files:
    """A certificate and its key, whose content is replaced."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.put(name)

    def put(self, name: str) -> None:
        for path in (self.cert, self.key):
            source = CERTIFICATES / f"{name}{'.pem' if path is self.cert else '.key'}"
            path.write_bytes(source.read_bytes())


@pytest.mark.parametrize("watch", [False, True])
@scenario
async def test_both_ports_use_a_new_certificate_after_a_reload(
    watch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.app.file_watch.INTERVAL_S", 0.02)
    files = Files(tmp_path, "other")
    pair: dict[str, Any] = {"cert": str(files.cert), "key": str(files.key)}
    admin = Admin(listen="127.0.0.1:0", tls=AdminTls(**pair))
    async with running(json_ok, tls=Tls(**pair), admin=admin, watch=watch) as router:
        app = router.app
        ports = {"data": app.port, "admin": app.admin_port}
        failed = app.metrics.reloads.failed
        assert not any([await asked(port) for port in ports.values()])
        files.cert.write_bytes(Path(CERT).read_bytes())  # not the certificate of the key
        if watch:
            await eventually(lambda: app.metrics.reloads.failed > failed, "it is refused")
        else:
            with pytest.raises(ConfigError, match="is not the key"):
                await app.reload()
        assert not any([await asked(port) for port in ports.values()])
        before = app.metrics.reloads.ok
        files.put("one")
        if watch:
            await eventually(lambda: app.metrics.reloads.ok > before, "it is read")
        else:
            await app.reload()
        assert {name: await asked(port) for name, port in ports.items()} == {
            "data": True,
            "admin": True,
        }


@scenario
async def test_the_certificates_that_the_admin_port_demands_follow_the_configuration() -> None:
    def with_ca(client_ca: str | None) -> Admin:
        tls = AdminTls(cert=CERT, key=KEY, client_ca=client_ca)
        return Admin(listen="127.0.0.1:0", tls=tls)

    async with running(json_ok, admin=with_ca(None)) as router:
        port = router.app.admin_port
        assert await asked(port)
        router.change(admin=with_ca(CERT))
        await router.app.reload()
        assert not await asked(port)
        assert await asked(port, presents="one")
        router.change(admin=with_ca(OTHER_CERT))
        await router.app.reload()
        assert not await asked(port, presents="one")
        assert await asked(port, presents="other")


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
