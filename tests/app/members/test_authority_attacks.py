"""Requests that try to pass the admin port without its token, or through another port."""

import asyncio
from pathlib import Path

import msgspec

from router.config.keys import KeyLine, hash_of
from router.config.model import Admin, Keys
from tests.harness.behaviours import json_ok
from tests.harness.messages import request
from tests.harness.running import Router, running, scenario

WITH_TOKEN = Admin(listen="127.0.0.1:0", token="secret", probes_listen="127.0.0.1:0")
BEARER = "Authorization: Bearer secret"
WRONG = "Authorization: Bearer wrong"


async def statuses(port: int, data: bytes) -> list[int]:
    """The statuses of all answers to these bytes, until the connection closes.

    The list is empty if the connection is reset before the answer was read.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        answers = await reader.read()
    except ConnectionError:
        answers = b""
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


def head(line: str, *fields: str) -> bytes:
    return "\r\n".join([line, "Host: a", *fields, "", ""]).encode()


def untouched(router: Router) -> bool:
    states = [shown["state"] for shown in router.app.replicas()]
    return not router.app.draining.has_begun and states == ["ready"]


PAGES = [
    "/usage?token=secret",
    "/usage?access_token=secret",
    "/%75sage",
    "/usag%65?x",
    "/metrics?x",
    "/%6detrics",
    "//usage",
    "/usage/",
    "/./usage",
    "/livez/../usage",
    "/livez/%2e%2e/usage",
    "/usage;x",
    "/usage#x",
    "http://a/usage",
    "http://secret@a/usage",
]


@scenario
async def test_no_spelling_of_a_page_passes() -> None:
    async with running(json_ok, admin=WITH_TOKEN) as router:
        for path in PAGES:
            for method in ("GET", "HEAD"):
                found = await statuses(
                    router.app.admin_port, head(f"{method} {path} HTTP/1.1", "Connection: close")
                )
                assert found and found[0] in (400, 401, 404), (method, path, found)


@scenario
async def test_no_method_passes() -> None:
    async with running(json_ok, admin=WITH_TOKEN) as router:
        port = router.app.admin_port
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "post", "BREW"):
            for path in ("/drain", "/usage", "/replicas/r0", "/replicas/r0/drain", "*"):
                found = await statuses(port, head(f"{method} {path} HTTP/1.1", "Connection: close"))
                assert all(status in (400, 401, 404, 405) for status in found), (
                    method,
                    path,
                    found,
                )
        override = ("X-HTTP-Method-Override: POST", "X-Original-URL: /drain", "Connection: close")
        assert await statuses(port, head("GET /livez HTTP/1.1", *override)) == [200]
        assert await statuses(port, head("GET /drain HTTP/1.1", *override)) == [401]
        assert untouched(router)


FIELDS: list[tuple[str, ...]] = [
    (WRONG, BEARER),
    (BEARER, WRONG),
    (BEARER, BEARER),
    ("Authorization: Bearer",),
    ("Authorization: Bearer ",),
    ("Authorization: secret",),
    ("Authorization: Basic c2VjcmV0",),
    ("Authorization: Bearer secret, Bearer secret",),
    ("Authorization: Bearer SECRET",),
    ("Authorization: Bearer \u00e9",),
    ("Proxy-Authorization: Bearer secret",),
    ("Cookie: token=secret",),
    ("X-Api-Key: secret",),
]


@scenario
async def test_no_other_field_is_the_token() -> None:
    async with running(json_ok, admin=WITH_TOKEN) as router:
        for fields in FIELDS:
            data = head("POST /drain HTTP/1.1", *fields, "Connection: close")
            assert await statuses(router.app.admin_port, data) in ([401], [400]), fields
        assert untouched(router)


HIDDEN = b"POST /drain HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
SMUGGLED = {
    "both lengths": head(
        "POST /livez HTTP/1.1", f"Content-Length: {len(HIDDEN) + 5}", "Transfer-Encoding: chunked"
    )
    + b"0\r\n\r\n",
    "space": head("POST /livez HTTP/1.1", "Transfer-Encoding : chunked", "Content-Length: 0"),
    "two lengths": head("GET /livez HTTP/1.1", "Content-Length: 0", "Content-Length: 9"),
    "pipelined": head("GET /livez HTTP/1.1"),
    "after the token": head("GET /usage HTTP/1.1", BEARER),
}


@scenario
async def test_a_request_behind_another_needs_the_token_itself() -> None:
    async with running(json_ok, admin=WITH_TOKEN) as router:
        for name, first in SMUGGLED.items():
            found = await statuses(router.app.admin_port, first + HIDDEN)
            assert not found or found[-1] in (400, 401), (name, found)
        assert untouched(router)


@scenario
async def test_a_key_of_a_tenant_is_no_token(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    line = KeyLine(name="acme", hash=hash_of(b"key-of-a-tenant-123456"))
    file.write_bytes(msgspec.json.encode(line) + b"\n")
    keys = Keys(file=str(file), required=True)
    async with running(json_ok, admin=WITH_TOKEN, keys=keys) as router:
        field = "Authorization: Bearer key-of-a-tenant-123456"
        assert (await router.admin("/usage", "GET", field)).status == 401
        assert (await router.admin("/drain", "POST", field)).status == 401
        # Nor is the token a key of the data port.
        data = request("/v1/models", BEARER, "Connection: close")
        assert (await router.ask(data)).status == 401
        assert untouched(router)


@scenario
async def test_the_data_port_has_no_admin_route() -> None:
    async with running(json_ok, admin=WITH_TOKEN) as router:
        for method, path in (
            ("POST", "/replicas"),
            ("POST", "/replicas/r0/drain"),
            ("DELETE", "/replicas/r0"),
            ("POST", "/drain"),
            ("POST", "/reload"),
            ("GET", "/usage"),
            ("GET", "/queue"),
        ):
            data = request(path, BEARER, "Connection: close", method=method)
            body = bytes((await router.ask(data, method)).body)
            # The path is that of the engine, whose answer shows no state of the router.
            assert b"tenants" not in body and b"waiting" not in body
        assert untouched(router)


@scenario
async def test_a_body_without_the_token_is_not_read() -> None:
    """A client sends an endless body. The answer comes at once, and the connection closes."""
    async with running(json_ok, admin=WITH_TOKEN) as router:
        data = head("POST /replicas HTTP/1.1", "Content-Length: 1000000000") + b" " * 100_000
        assert await statuses(router.app.admin_port, data) == [401]
