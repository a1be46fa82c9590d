"""Requests to the admin port and the probes' port from a web page, a proxy or a replica."""

import gzip

import pytest

from router.config.model import Admin
from tests.app.members.test_authority_attacks import head, statuses
from tests.harness.behaviours import json_ok
from tests.harness.running import Router, running, scenario

TOKEN = "Authorization: Bearer secret"
BOTH = Admin(listen="127.0.0.1:0", probes_listen="127.0.0.1:0")
PROBES = ("/livez", "/healthz", "/readyz", "/health")
PAGES = ("/metrics", "/usage", "/queue", "/replicas", "/replicas/r0", "/fleet", "/hedging")
CHANGES = ("POST /drain", "POST /reload", "POST /replicas", "POST /replicas/r0/drain")


async def asks(port: int, line: str, host: str, *fields: str) -> list[int]:
    """The statuses of the answers to one request."""
    data = head(f"{line} HTTP/1.1", *fields, "Connection: close")
    return await statuses(port, data.replace(b"Host: a", f"Host: {host}".encode()))


def untouched(router: Router) -> bool:
    return not router.app.draining.has_begun and [
        one["state"] for one in router.app.replicas()
    ] == ["ready"]


@pytest.mark.parametrize(
    "name",
    [
        *("evil.example", "evil.example:9901", "127.0.0.1.evil.example", "EVIL.example."),
        *("localhost.evil.example", "evil.local", "svc.evil", "notinternal.example", "[evil.com]"),
        *("gpu-1.example.com.evil.test", "xgpu-1.example.com", "example.org"),
    ],
)
@scenario
async def test_a_page_whose_name_resolves_here_reads_nothing(name: str) -> None:
    hosts = ("gpu-1.example.com", "*.example.org")
    admin = Admin(listen="127.0.0.1:0", probes_listen="127.0.0.1:0", hosts=hosts)
    async with running(json_ok, admin=admin) as router:
        port, probes = router.app.admin_port, router.app.probes_port
        for line in (*(f"GET {page}" for page in PAGES), "HEAD /usage", "OPTIONS /usage", *CHANGES):
            assert await asks(port, line, name) == [421], line
        assert await asks(probes, "GET /metrics", name) == [421]
        for path in PROBES:  # An orchestrator may use any name, and they tell nothing.
            assert await asks(port, f"GET {path}", name) == [200]
            assert await asks(probes, f"GET {path}", name) == [200]
        assert untouched(router)


@scenario
async def test_usual_names_are_answered_and_more_can_be_set() -> None:
    async with running(json_ok, admin=BOTH) as router:
        port, probes = router.app.admin_port, router.app.probes_port
        usual = ("127.0.0.1:9901", "127.0.0.1", "10.1.2.3:9901", "[::1]:9901", "[fd00::7]")
        usual += ("localhost:9901", "LOCALHOST", "hedgerow:9902", "a.localhost", "gpu.internal")
        usual += ("hedgerow.inference.svc", "hedgerow-0.hedgerow.inference.svc.cluster.local:9902")
        for name in usual:
            assert await asks(port, "GET /usage", name) == [200], name
            assert await asks(probes, "GET /metrics", name) == [200], name
        assert await asks(port, "GET /usage", "") == [200], "no browser leaves the name out"
        # A reload adds names, and removes them.
        more = ("gpu-1.example.com", "a.b.example.org")
        for hosts, status in ((("gpu-1.example.com", "*.example.org"), 200), ((), 421)):
            router.change(admin=Admin(listen=BOTH.listen, probes_listen="127.0.0.1:0", hosts=hosts))
            assert await asks(port, "POST /reload", "localhost") == [200]
            for name in more:
                assert await asks(port, "GET /usage", name) == [status], name
                assert await asks(probes, "GET /metrics", f"{name}:9902") == [status], name


@scenario
async def test_the_token_is_enough_under_any_name() -> None:
    async with running(json_ok, admin=Admin(listen="127.0.0.1:0", token="secret")) as router:
        port = router.app.admin_port
        for page in PAGES:
            assert await asks(port, f"GET {page}", "gpu-1.example.com") == [401], page
            assert await asks(port, f"GET {page}", "gpu-1.example.com", TOKEN) == [200], page


@pytest.mark.parametrize("via", ["1.1 hedgerow", "1.0 proxy.example", "1.1 a, 2 b"])
@scenario
async def test_forwarded_requests_are_refused(via: str) -> None:
    """A data port, this one's or another's, may have the admin port as a replica."""
    for admin, fields in ((BOTH, ()), (Admin(listen="127.0.0.1:0", token="secret"), (TOKEN,))):
        async with running(json_ok, admin=admin) as router:
            ports = {router.app.admin_port, router.app.probes_port} - {0}
            for line in (*(f"GET {page}" for page in (*PAGES, *PROBES)), *CHANGES):
                for port in ports:
                    assert await asks(port, line, "a", f"Via: {via}", *fields) == [403]
            assert await asks(router.app.admin_port, "POST /drain", "a", "via: 1.1 x") == [403]
            assert untouched(router)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
@scenario
async def test_no_body_is_decompressed(coding: str) -> None:
    """A body of 64 KiB with another one of 64 MiB in it: only its length counts."""
    bomb = gzip.compress(b" " * (64 << 20))[: 64 << 10]
    fields = (f"Content-Encoding: {coding}", f"Content-Length: {len(bomb)}")
    async with running(json_ok, admin=BOTH) as router:
        for port in (router.app.admin_port, router.app.probes_port):
            for line in ("GET /livez", "POST /livez", "GET /metrics"):
                data = head(f"{line} HTTP/1.1", *fields, "Connection: close") + bomb
                found = await statuses(port, data)
                assert found in ([415], []), found
        # A decompressor would refuse the second body with 400.
        for small in (gzip.compress(b'{"url": "http://127.0.0.1:9"}'), b"not compressed"):
            fields = (f"Content-Encoding: {coding}", f"Content-Length: {len(small)}")
            data = head("POST /replicas HTTP/1.1", *fields, "Connection: close") + small
            assert await statuses(router.app.admin_port, data) == [415]
        assert untouched(router)
