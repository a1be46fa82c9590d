"""The admin port of a whole router asks for its token, or for a client certificate."""

import asyncio
import ssl
from pathlib import Path

import pytest

from router.config.model import Admin, AdminTls
from router.core.errors import ConfigError
from tests.harness.behaviours import json_ok
from tests.harness.client import RawClient
from tests.harness.messages import request
from tests.harness.running import Router, running, scenario
from tests.places import CERT, KEY

BEARER = "Authorization: Bearer secret"
WITH_TOKEN = Admin(listen="127.0.0.1:0", token="secret")


@scenario
async def test_all_but_probes_need_the_token() -> None:
    async with running(json_ok, admin=WITH_TOKEN) as router:
        for method, path in (
            ("POST", "/replicas/r0/cordon"),
            ("DELETE", "/replicas/r0"),
            ("POST", "/replicas"),
            ("POST", "/reload"),
            ("POST", "/drain"),
            ("GET", "/usage"),
            ("GET", "/queue"),
            ("GET", "/metrics"),
            ("GET", "/replicas"),
            ("GET", "/replicas/r0"),
            ("GET", "/fleet"),
            ("GET", "/hedging"),
            ("GET", "/nothing"),
            ("POST", "/nothing"),
        ):
            for fields in ((), ("Authorization: Bearer wrong",)):
                answer = await router.admin(path, method, *fields)
                assert (answer.status, answer.json()["error"]["code"]) == (401, "unauthorized"), (
                    path
                )
                assert (answer.header("www-authenticate") or "").startswith("Bearer")
        assert not router.app.draining.has_begun
        assert [shown["state"] for shown in router.app.replicas()] == ["ready"]
        for path in ("/", "/livez", "/healthz", "/readyz", "/health"):
            assert (await router.admin(path)).status == 200
        for path in ("/usage", "/metrics", "/replicas", "/replicas/r0", "/fleet", "/hedging"):
            assert (await router.admin(path, "GET", BEARER)).status == 200
        assert (await router.admin("/replicas/r0/cordon", "POST", BEARER)).status == 200


@scenario
async def test_a_reload_reads_the_token_file_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    admin = Admin(listen="127.0.0.1:0", token_file=str(file))
    async with running(json_ok, admin=admin) as router:
        assert (await router.admin("/usage", "GET", BEARER)).status == 200
        file.write_text("another\n")
        assert (await router.admin("/reload", "POST", BEARER)).status == 200
        assert (await router.admin("/usage", "GET", BEARER)).status == 401
        answer = await router.admin("/usage", "GET", "Authorization: Bearer another")
        assert answer.status == 200
        file.write_text("two words")
        with pytest.raises(ConfigError) as caught:
            await router.app.reload()
        assert caught.value.problems[0].startswith("admin.token_file: a token is one word")


async def asked(port: int, path: str, method: str = "GET") -> int:
    client = await RawClient.connect(port)
    try:
        await client.send(request(path, BEARER, "Connection: close", method=method))
        return (await client.recv_response(method)).status
    finally:
        client.close()


@scenario
async def test_probes_have_a_port_of_their_own() -> None:
    admin = Admin(listen="127.0.0.1:0", token="secret", probes_listen="127.0.0.1:0")
    async with running(json_ok, admin=admin) as router:
        port = router.app.probes_port
        assert port not in (0, router.app.admin_port)
        for path in ("/livez", "/readyz", "/metrics"):
            assert await asked(port, path) == 200
        for path in ("/", "/usage", "/queue", "/replicas", "/replicas/r0"):
            assert await asked(port, path) == 404
        assert await asked(port, "/drain", "POST") == 404
        assert not router.app.draining.has_begun


async def over_tls(router: Router, *, with_certificate: bool) -> bytes:
    """The answer of the admin port to GET /usage; b"": the handshake failed."""
    context = ssl.create_default_context(cafile=CERT)
    if with_certificate:
        context.load_cert_chain(CERT, KEY)
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", router.app.admin_port, ssl=context, server_hostname="one.test"
        )
        writer.write(request("/usage", "Connection: close"))
        found = await reader.read()
        writer.close()
        await writer.wait_closed()
        return found
    except (ssl.SSLError, ConnectionError):
        return b""


@scenario
async def test_mutual_tls_admits_only_clients_with_a_certificate() -> None:
    tls = AdminTls(cert=CERT, key=KEY, client_ca=CERT)
    async with running(json_ok, admin=Admin(listen="127.0.0.1:0", tls=tls)) as router:
        assert (await over_tls(router, with_certificate=True)).startswith(b"HTTP/1.1 200")
        assert await over_tls(router, with_certificate=False) == b""
