"""Each engine module of the router matches the emulated persona: counts, cached tokens, token IDs,
KV events, abort, priority.

The personas were written from the engines' sources, not from these modules.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from router.dispatch.attempts.body_edit import append
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.priority import SILENT
from router.fleet.engines.common.registry import ENGINES
from router.lab.emulator.settings import PERSONAS
from tests.addons.needed import needs
from tests.app.emulator.conftest import Fleet, started
from tests.app.emulator.test_server import LONG, raw_post

MESSAGES = [{"role": "user", "content": "Tell me of the sea."}]
CHAT: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 8}
CHAT_PATH = "/v1/chat/completions"


@pytest.fixture(scope="module", params=PERSONAS)
def _fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    options = [f"--persona={request.param}"]
    if ENGINES[request.param].publisher is not None:
        options.append("--kv-events")
    yield from started(*options)


@pytest.fixture
def engine(fleet: Fleet) -> Engine:
    return ENGINES[fleet.state()["persona"]]


def test_its_streams_tell_their_counts(fleet: Fleet, engine: Engine) -> None:
    body = [json.dumps({**CHAT, "stream": True}).encode()]
    ask = engine.usage_ask
    if ask is not None:
        body = append(body, ask.member) or []
    answer = fleet.post(CHAT_PATH, content=b"".join(body))
    assert answer.status_code == 200
    tap = UsageTap(mark=engine.counts_mark, takes_out=ask is not None)
    passed = tap.feed(answer.content) + tap.flush()
    told = tap.result(True)
    if ask is None and engine.counts_mark not in answer.content:
        assert not told.exact, "it tells them only where its client asks"
        return
    assert told.exact
    whole = fleet.post(CHAT_PATH, json=CHAT).json()["usage"]
    assert told.prompt_tokens == whole["prompt_tokens"]
    assert told.output_tokens == whole["completion_tokens"]
    assert ask is None or b'"prompt_tokens"' not in passed, "its event is taken out again"


@needs("kv_events")
def test_it_tells_token_ids_of_messages(fleet: Fleet, engine: Engine) -> None:
    from router.addons.kv_events.tokens.facts import Facts
    from router.addons.kv_events.tokens.remote import request_body

    if not engine.tokenize:
        return
    body = request_body(Facts("chat", "tiny", json.dumps(MESSAGES).encode()))
    answer = fleet.post(engine.tokenize, content=body or b"")
    assert answer.status_code == 200
    tokens = answer.json()["tokens"]
    assert tokens and all(isinstance(token, int) for token in tokens)


def test_it_tells_where_it_publishes_kv_events(fleet: Fleet, engine: Engine) -> None:
    publisher = engine.publisher
    if publisher is None:
        return
    answer = fleet.get(publisher.path)
    (source,) = publisher.read(answer.content, "127.0.0.1")
    assert source.endpoint.startswith("tcp://127.0.0.1:")
    assert source.replay is not None


def test_it_stops_a_request_by_its_name(fleet: Fleet, engine: Engine) -> None:
    abort = engine.abort
    if abort is None:
        return
    named = {**LONG, abort.key.decode(): "name-01"}
    with raw_post(fleet.url, "/v1/completions", named):
        fleet.until(lambda: fleet.state()["running"] == 1, "it runs")
        answer = fleet.post(abort.path, content=b"{%b}" % abort.member(b"name-01"))
        assert answer.status_code == 200
        fleet.until(lambda: fleet.state()["running"] == 0, "it was stopped")


def test_a_request_ends_when_its_connection_closes(fleet: Fleet, engine: Engine) -> None:
    if engine.abort is not None:
        return
    with raw_post(fleet.url, "/v1/completions", LONG):
        fleet.until(lambda: fleet.state()["running"] == 1, "it runs")
    fleet.until(lambda: fleet.state()["running"] == 0, "it was stopped")


@pytest.mark.parametrize("rank", range(5))
def test_it_takes_the_number_that_it_is_told(fleet: Fleet, engine: Engine, rank: int) -> None:
    if engine.dialect is SILENT:
        return
    word = engine.dialect.write(float(rank), 1.8e9, 300.0, False)
    body = append([json.dumps(CHAT).encode()], b'"priority":' + word)
    assert body is not None
    answer = fleet.post(CHAT_PATH, content=b"".join(body))
    assert answer.status_code == 200
    assert fleet.state()["priorities"][-1] == json.loads(word)
