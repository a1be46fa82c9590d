"""The admin listener over real sockets: every route, every refusal, and a bounded stop."""

import asyncio
import gzip
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from router.core.errors import ConfigError, Reason
from router.observe.admin import listener as admin, routes as admin_routes
from router.observe.admin.actions import FIRST, LAST
from router.observe.admin.listener import Admin
from router.observe.families.collector import Collector
from router.observe.metrics import Metrics
from tests.harness.running import scenario
from tests.observe.helpers import run


@dataclass
class Actions:
    """A router whose actions the test defines."""

    readiness: tuple[bool, str] = (True, "")
    fleet: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    members: Any = None  # tests/app/members tests these routes on a whole router
    reloads: int = 0
    drains: int = 0

    def ready(self) -> tuple[bool, str]:
        return self.readiness

    async def replicas(self) -> list[dict[str, Any]]:
        return self.fleet

    async def hedging(self) -> dict[str, Any]:
        return {"policy": "adaptive", "counts": {"fired": 3}}

    async def queue(self) -> dict[str, Any]:
        return {"enabled": True, "waiting": 7}

    async def usage(self, first: int, last: int) -> dict[str, Any]:
        return {"tenants": [{"tenant": "acme", "requests": 3}], "days": [first, last]}

    async def usage_csv(self, first: int, last: int) -> bytes:
        return b"day,tenant\r\n%d,%d\r\n" % (first, last)

    async def reload(self) -> str:
        self.reloads += 1
        await asyncio.sleep(0)
        if self.problems:
            raise ConfigError(self.problems)
        return "c0ffee"

    def drain(self) -> None:
        self.drains += 1


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"].startswith("application/json")
        return json.loads(self.body)


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    async def raw(self, data: bytes) -> Answer:
        """Send bytes, read until the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        first, *rest = head.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in rest)
        headers = {name.lower(): value for name, value in pairs}
        return Answer(int(first.split()[1]), headers, body)

    async def __call__(self, method: str, path: str, **headers: str) -> Answer:
        lines = [f"{method} {path} HTTP/1.1", "Host: admin", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())


async def start(listener: Admin, tls: ssl.SSLContext | None = None) -> int:
    """Start a listener on a free port; returns the port."""
    sock = socket.create_server(("127.0.0.1", 0))
    port = int(sock.getsockname()[1])
    await listener.start([sock], lambda: tls)
    return port


@asynccontextmanager
async def serve(actions: Actions, metrics: Metrics | None = None) -> AsyncIterator[Client]:
    listener = Admin(actions, Collector(metrics or Metrics()))
    port = await start(listener)
    try:
        yield Client(port)
    finally:
        await listener.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@scenario
async def test_livez_and_readyz() -> None:
    actions = Actions()
    async with serve(actions) as ask:
        answer = await ask("GET", "/readyz")
        assert (answer.status, answer.body) == (200, b"ready\n")
        actions.readiness = (False, "no replica is up")
        answer = await ask("GET", "/readyz")
        assert (answer.status, answer.body) == (503, b"no replica is up\n")
        assert (await ask("GET", "/livez")).status == 200
        assert (await ask("HEAD", "/livez")).body == b""


@scenario
async def test_metrics_in_the_format_asked_for() -> None:
    metrics = Metrics()
    metrics.finished("chat", Reason.OK, 200, 0.1, 0.01, 1, 2)
    async with serve(Actions(), metrics) as ask:
        plain = await ask("GET", "/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        line = b'hedgerow_requests_total{kind="chat",reason="ok",status="200"} 1.0\n'
        assert line in plain.body
        accept = "application/openmetrics-text; version=1.0.0; q=0.8, text/plain; q=0.5"
        asked = await ask("GET", "/metrics", Accept=accept)
        assert asked.headers["content-type"].startswith("application/openmetrics-text")
        assert asked.body.endswith(b"# EOF\n")
        assert asked.body.count(b"# EOF\n") == 1


@pytest.mark.parametrize(
    ("accepted", "is_zipped"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip; q=1.0, *;q=0", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, identity", False),
        ("", False),
        ("x-gzip2,,;q=", False),
    ],
)
@scenario
async def test_metrics_are_compressed_for_clients_that_accept_it(
    accepted: str, is_zipped: bool
) -> None:
    async with serve(Actions()) as ask:
        answer = await ask("GET", "/metrics", **{"Accept-Encoding": accepted})
        assert answer.headers.get("content-encoding") == ("gzip" if is_zipped else None)
        assert answer.headers["vary"] == "Accept, Accept-Encoding"
        body = gzip.decompress(answer.body) if is_zipped else answer.body
        assert b"hedgerow_config_reload_success 1.0\n" in body
        assert int(answer.headers["content-length"]) == len(answer.body)


@scenario
async def test_the_json_pages() -> None:
    async with serve(Actions()) as ask:
        assert (await ask("GET", "/hedging")).json == await Actions().hedging()
        assert (await ask("GET", "/queue")).json == await Actions().queue()
        assert (await ask("GET", "/usage")).json == await Actions().usage(FIRST, LAST)
        days = "from=1970-01-02&to=1970-01-03"
        assert (await ask("GET", f"/usage?{days}")).json["days"] == [1, 2]
        answer = await ask("GET", f"/usage?{days}&format=csv")
        assert answer.body == b"day,tenant\r\n1,2\r\n"
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert (await ask("GET", "/usage?days=3")).status == 400


@scenario
async def test_the_index_names_every_route() -> None:
    async with serve(Actions()) as ask:
        text = (await ask("GET", "/")).body
        for path in ("metrics", "livez", "readyz", "replicas", "hedging", "reload", "drain"):
            assert f"/{path}".encode() in text


@scenario
async def test_unknown_paths_and_wrong_methods_do_nothing() -> None:
    actions = Actions()
    async with serve(actions) as ask:
        for method, path in (("GET", "/nothing"), ("POST", "/v1/chat/completions"), ("GET", "//")):
            answer = await ask(method, path)
            assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
            assert "GET / lists" in answer.json["error"]["message"]
        for method, path, allow in (
            ("GET", "/drain", "POST"),
            ("GET", "/reload", "POST"),
            ("POST", "/metrics", "GET,HEAD"),
            ("DELETE", "/livez", "GET,HEAD"),
        ):
            answer = await ask(method, path)
            assert (answer.status, answer.headers["allow"]) == (405, allow)
            assert answer.json["error"]["code"] == "method_not_allowed"
            assert answer.json["error"]["message"].endswith(f"only {allow}")
        assert (actions.drains, actions.reloads) == (0, 0)


@scenario
async def test_large_bodies_are_refused_and_small_ones_ignored() -> None:
    actions = Actions()
    async with serve(actions) as ask:
        head = b"POST /drain HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n"
        large = b"Content-Length: 70000\r\n\r\n" + b"x" * 70_000
        chunks = b"Transfer-Encoding: chunked\r\n\r\n" + b"4000\r\n%b\r\n" % (b"x" * 0x4000) * 5
        for body in (large, chunks + b"0\r\n\r\n"):
            answer = await ask.raw(head + body)
            assert answer.status == 413
            assert answer.json["error"]["code"] == "request_entity_too_large"
        assert actions.drains == 0
        assert (await ask.raw(head + b"Content-Length: 2\r\n\r\n{}")).status == 202


@scenario
async def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_routes, "BODY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(admin_routes, "LINGER_S", 0.05)
    actions = Actions()
    async with serve(actions) as ask:
        answer = await ask.raw(b"POST /drain HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx")
        assert answer.status == 408
        assert actions.drains == 0


@pytest.mark.parametrize("is_reset", [False, True])
@scenario
async def test_a_client_that_leaves_in_its_body_is_no_failure(
    caplog: pytest.LogCaptureFixture, is_reset: bool
) -> None:
    actions = Actions()
    async with serve(actions) as ask:
        _, writer = await asyncio.open_connection("127.0.0.1", ask.port)
        writer.write(b"POST /drain HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx")
        assert (await ask("GET", "/livez")).status == 200
        if is_reset:
            writer.transport.abort()
        writer.close()
        for _ in range(3):
            assert (await ask("GET", "/livez")).status == 200
        assert actions.drains == 0
    assert not caplog.records


@scenario
async def test_an_action_that_fails_is_a_500_and_one_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Actions):
        def ready(self) -> tuple[bool, str]:
            raise RuntimeError("secret detail")

    async with serve(Broken()) as ask:
        answer = await ask("GET", "/readyz")
        assert (answer.status, answer.json["error"]["code"]) == (500, "internal")
        assert b"secret" not in answer.body
        assert (await ask("GET", "/livez")).status == 200
    assert [record.getMessage() for record in caplog.records] == ["admin request failed"]


@scenario
async def test_rubbish_is_refused_and_the_listener_lives() -> None:
    async with serve(Actions()) as ask:
        assert (await ask.raw(b"\x16\x03\x01\x00\xa5 rubbish\r\n\r\n")).status == 400
        assert (await ask("GET", "/livez")).status == 200


def test_stop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "CLOSE_TIMEOUT_S", 0.05)
    entered = asyncio.Event()

    class Stuck(Actions):
        async def reload(self) -> str:
            entered.set()
            await asyncio.get_running_loop().create_future()
            return ""

    async def main() -> None:
        listener = Admin(Stuck(), Collector(Metrics()))
        port = await start(listener)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /reload HTTP/1.1\r\nHost: a\r\n\r\n")
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        await entered.wait()
        await listener.stop()
        await listener.stop()
        assert await reader.read() == b""
        assert await idle_reader.read() == b""
        for each in (writer, idle_writer):
            each.close()
            await each.wait_closed()

    run(main())


def test_aiohttp_is_imported_only_when_the_listener_starts() -> None:
    program = "import sys, router.observe.admin.listener; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=20).returncode == 0
