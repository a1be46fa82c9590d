"""Web pages of other origins: every response has one set of CORS fields, preflights need no key."""

from pathlib import Path
from typing import Any

import pytest

from router.config.load import parse
from router.config.model import Batches, Cors, Keys
from router.core.errors import ConfigError
from tests.addons.needed import needs
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness.behaviours import hang
from tests.harness.messages import chat, request, response
from tests.harness.reading import Response
from tests.harness.replica import ReplicaConnection
from tests.harness.running import Router, running, scenario

ORIGIN = "https://chat.example"
BODY = b'{"id": "x"}'
PAGE = f"Origin: {ORIGIN}"
PREFLIGHT = ("Access-Control-Request-Method: POST", "access-control-request-headers: x-a, x-b")
ANY, LISTED = Cors(origins=("*",)), Cors(origins=("http://localhost:3000", ORIGIN))


def allows(answer: Response) -> str | None:
    """The origin whose pages may read the response; at most one field has it."""
    assert "credentials" not in str(answer.headers), answer
    return answer.header("access-control-allow-origin")


async def permissive(connection: ReplicaConnection) -> None:
    """An engine with CORS fields of its own, and a `Vary` of its own."""
    while await connection.recv_request():
        own = ("Access-Control-Allow-Origin: *", "access-control-allow-credentials: true")
        await connection.send(response(200, *own, "Vary: Accept", body=BODY))


def local(*fields: str) -> dict[str, bytes]:
    """Requests with the given fields, and for each who answers."""
    return {
        "engine": chat(*fields),
        "engine, other path": request("/plain", *fields),
        "models": request("/v1/models", *fields),
        "health": request("/health", *fields),
        "options": request("*", *fields, method="OPTIONS"),
        "stored response": request("/v1/responses/unknown", *fields),
        "blocked path": request("/metrics", *fields),
        "two hosts": request("/v1/models", *fields, "Host: b"),
        "method": request("/v1/models", *fields, method="TRACE"),
        "body": request("/v1/chat/completions", *fields, method="POST", body=b"{"),
        "model": chat(*fields, model="unknown"),
        "path": request("//v1/models", *fields),
        "large": request("/v1/files", *fields, "Content-Length: 99999999999", method="POST"),
        "batches": request("/v1/batches", *fields),
    }


async def answers(router: Router, *fields: str) -> dict[str, Response]:
    asked = local(BEARER, *fields) | {"key": chat(*fields)}
    return {name: await router.ask(data) for name, data in asked.items()}


@needs("batches")
@pytest.mark.parametrize(
    ("cors", "origin", "expected"),
    [
        (ANY, ORIGIN, "*"),
        (LISTED, ORIGIN, ORIGIN),
        (LISTED, ORIGIN.upper(), ORIGIN),
        (LISTED, "https://evil.example", None),
        (LISTED, "null", None),
        (Cors(origins=("null",)), "null", "null"),
    ],
)
@scenario
async def test_every_response_has_the_fields_once(
    cors: Cors, origin: str, expected: str | None, tmp_path: Path
) -> None:
    keys = Keys(file=file_of(tmp_path, acme()), required=True)
    batches = Batches(enabled=True, folder=str(tmp_path / "batches"))
    async with running(permissive, cors=cors, keys=keys, batches=batches) as router:
        for name, answer in (await answers(router, f"Origin: {origin}")).items():
            assert allows(answer) == expected, (name, answer)
            exposed = answer.header("access-control-expose-headers")
            assert exposed == (None if expected is None else "*"), name
            assert ("origin" in answer.all("vary")) == (cors is not ANY), name
        assert all(seen.header("origin") is None for seen in router.replica.requests)


@scenario
async def test_without_origins_the_engine_decides(tmp_path: Path) -> None:
    async with running(permissive) as router:
        for name, answer in (await answers(router, PAGE)).items():
            is_engines = bytes(answer.body) == BODY
            assert answer.all("access-control-allow-origin") == ["*"] * is_engines, name
        assert router.replica.requests[0].header("origin") == ORIGIN
        await router.ask(request("/v1/models", PAGE, *PREFLIGHT, method="OPTIONS"), "OPTIONS")
        assert router.replica.requests[-1].method == "OPTIONS"


@needs("batches")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files", "/health", "/any//path"])
@pytest.mark.parametrize(
    ("cors", "expected"),
    [
        (ANY, ("*", "x-a, x-b", "GET, HEAD, POST, PUT, PATCH, DELETE", "7200")),
        (
            Cors(origins=(ORIGIN,), headers=("authorization",), methods=("POST",), max_age_s=5.0),
            (ORIGIN, "authorization", "POST", "5"),
        ),
        (
            Cors(origins=("http://other",)),
            (None, "x-a, x-b", "GET, HEAD, POST, PUT, PATCH, DELETE", "7200"),
        ),
    ],
)
@scenario
async def test_a_preflight_needs_no_key_and_no_replica(
    cors: Cors, expected: tuple[Any, ...], path: str, tmp_path: Path
) -> None:
    keys = Keys(file=file_of(tmp_path, acme()), required=True)
    batches = Batches(enabled=True, folder=str(tmp_path / "batches"))
    async with running(permissive, cors=cors, keys=keys, batches=batches) as router:
        client = await router.client()
        for _ in range(2):  # the second time from a remembered head
            await client.send(request(path, PAGE, *PREFLIGHT, method="OPTIONS"))
            answer = await client.recv_response("OPTIONS")
            names = ("allow-origin", "allow-headers", "allow-methods", "max-age")
            found = tuple(answer.header(f"access-control-{name}") for name in names)
            assert (answer.status, found) == (200, expected), answer
        plain = await router.ask(request(path, PAGE, method="OPTIONS"), "OPTIONS")
        assert plain.status == 401 or path == "/health"
        assert not router.replica.requests


@pytest.mark.parametrize("origin", [ORIGIN, None])
@scenario
async def test_an_early_answer_has_the_fields(origin: str | None) -> None:
    async with running(hang, cors=LISTED, timeouts={"commit_after_s": 0.01}) as router:
        client = await router.client()
        await client.send(chat(*([PAGE] if origin else []), stream=True))
        head = (await client.recv_head()).lower()
        assert head.count(b"access-control-allow-origin:") == 1
        assert head.count(b"\r\ndate: ") == 1
        await router.answers_early()


@scenario
async def test_a_reload_applies_at_once() -> None:
    async with running(permissive) as router:
        client = await router.client()
        for cors, expected in ((LISTED, ORIGIN), (ANY, "*"), (Cors(), None)):
            router.change(cors=cors)
            await router.app.reload()
            await client.send(request("/v1/models", PAGE))
            assert allows(await client.recv_response()) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("origins: [https://a/]", "cors.origins[0]"),
        ("origins: [a.example]", "cors.origins[0]"),
        ('origins: ["https://*.example"]', "cors.origins[0]"),
        ('origins: ["*"]\n  headers: ["x-a: b"]', "cors.headers[0]"),
        ('origins: ["*"]\n  methods: ["GET, POST"]', "cors.methods[0]"),
        ('origins: ["*"]\n  exposed: ["é"]', "cors.exposed[0]"),
        ("origins: https://a", "cors.origins"),
        ("origins: ['https://a:443']", "default port: use 'https://a'"),
        ("origins: ['http://b', 'HTTP://a:080']", "cors.origins[1]: browsers leave out"),
        ("origins: ['https://[::1]:443']", "use 'https://[::1]'"),
    ],
)
def test_odd_settings_are_refused(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"cors:\n  {text}\n", {"replicas": ["http://a"]})
    assert error in str(caught.value)


def test_origins_of_browsers_and_apps_are_accepted() -> None:
    texts = [
        "*",
        "null",
        "https://[::1]:3000",
        "http://a:443",
        "https://[::443]",
        "tauri://localhost",
        "chrome-extension://abc",
    ]
    config = parse(f"cors: {{origins: {texts!r}}}", {"replicas": ["http://a"]})
    assert list(config.cors.origins) == texts
