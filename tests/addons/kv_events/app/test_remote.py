"""/tokenize of real servers: the answer, and every failure."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from router.addons.kv_events.tokens.facts import Facts
from router.addons.kv_events.tokens.remote import RemoteTokenizer, Target, request_body
from router.config.in_force import InForce
from router.config.model import Config
from tests.addons.kv_events.tokens.models import ids, raw
from tests.harness.behaviours import answer, hang, rst_unread
from tests.harness.listeners import dead_url
from tests.harness.messages import response
from tests.harness.replica import Behaviour, HostileReplica
from tests.harness.running import scenario
from tests.places import DATA

RECORDED = DATA / "kv_events" / "tokenize.http"
FACTS = Facts("completions", "tiny", prompt=raw("Hello"))


@asynccontextmanager
async def asking(behave: Behaviour) -> AsyncIterator[tuple[RemoteTokenizer, HostileReplica]]:
    server = HostileReplica(behave, asked_apart=False)
    server.start()
    remote = RemoteTokenizer(InForce(Config(), "secret"), timeout_s=1.0)
    remote.start()
    try:
        yield remote, server
    finally:
        await remote.stop()
        await server.stop()
        await asyncio.sleep(0)


@scenario
async def test_a_recorded_answer() -> None:
    async with asking(answer(RECORDED.read_bytes())) as (remote, server):
        body = request_body(FACTS)
        assert body is not None
        assert ids(await remote.tokens(body, Target(server.url + "/tokenize"))) == [
            71,
            68,
            75,
            75,
            78,
        ]
        (request,) = await server.wait_for_requests(1)
        assert (request.method, request.target) == ("POST", "/tokenize")
        assert json.loads(bytes(request.body)) == {"model": "tiny", "prompt": "Hello"}
        assert dict(request.headers)["authorization"] == "Bearer secret"


BAD: list[tuple[str, Any]] = [
    ("status", answer(response(500, body=b'{"tokens":[1]}'))),
    ("no json", answer(response(200, body=b"tokens"))),
    ("no tokens", answer(response(200, body=b'{"count":1}'))),
    ("no ids", answer(response(200, body=b'{"tokens":["a"]}'))),
    ("not an id", answer(response(200, body=b'{"tokens":[-1]}'))),
    ("garbage", answer(b"garbage\r\n\r\n")),
    ("hang", hang),
    ("reset", rst_unread),
    ("elsewhere", answer(response(307, "Location: /other"))),
]


@pytest.mark.parametrize("behave", [bad for _, bad in BAD], ids=[name for name, _ in BAD])
@scenario
async def test_no_answer_is_none(behave: Behaviour) -> None:
    async with asking(behave) as (remote, server):
        assert await remote.tokens(b"{}", Target(server.url + "/tokenize")) is None


@scenario
async def test_nobody_there() -> None:
    async with asking(hang) as (remote, _):
        assert await remote.tokens(b"{}", Target(dead_url() + "/tokenize")) is None
