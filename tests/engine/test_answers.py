"""Everything except streams: whole answers, the engine's own refusals, other endpoints."""

import json
from typing import Any

import httpx
import openai
import pytest

from tests.engine.loads import bodies
from tests.engine.machine.fleet import CONTEXT_TOKENS, MODEL, Engine, Engines, Hedgerow
from tests.engine.machine.tiny_model import ASCII_IDS, CHARACTERS

TOKENS = 40
TIMEOUT_S = 60.0
TOO_LONG = "x" * (2 * CONTEXT_TOKENS)  # one token per character


def post(service: Engine | Hedgerow, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{service.url}{path}", json=body, timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", bodies.chat("whole chat", TOKENS)),
        ("/v1/completions", bodies.completion("whole completion", TOKENS)),
        (
            "/v1/chat/completions",
            bodies.chat("\u00e9\u4e16\U0001f33f", TOKENS, logprobs=True),
        ),
        ("/tokenize", {"model": MODEL, "prompt": "count me"}),
        ("/detokenize", {"model": MODEL, "tokens": ASCII_IDS}),
    ],
    ids=["chat", "completion", "chat beyond ASCII", "tokenize", "detokenize"],
)
def test_whole_answers_are_the_engines(
    engines: Engines, hedgerow: Hedgerow, path: str, body: dict[str, Any]
) -> None:
    direct, relayed = post(engines[0], path, body), post(hedgerow, path, body)
    assert relayed.status_code == 200, relayed.text
    assert relayed.headers["content-type"] == direct.headers["content-type"]
    assert int(relayed.headers["content-length"]) == len(relayed.content)
    assert bodies.without_identity(relayed.json()) == bodies.without_identity(direct.json())


@pytest.mark.parametrize(
    "body",
    [
        bodies.chat(TOO_LONG, 4),
        bodies.chat(TOO_LONG, 4, stream=True),
        bodies.chat("odd top_k", 4, top_k="many"),
        bodies.chat("odd temperature", 4, stream=True) | {"temperature": "warm"},
    ],
    ids=["prompt too long", "prompt too long for a stream", "odd top_k", "odd temperature"],
)
def test_refusals_are_the_engines(
    engines: Engines, hedgerow: Hedgerow, body: dict[str, Any]
) -> None:
    """The router checks only the fields it routes by; the engine validates the others."""
    path = "/v1/chat/completions"
    direct, relayed = post(engines[0], path, body), post(hedgerow, path, body)
    assert (relayed.status_code, relayed.content) == (400, direct.content)
    assert relayed.headers["content-type"] == direct.headers["content-type"]


def test_refused_requests_eject_no_replica(engines: Engines, hedgerow: Hedgerow) -> None:
    """A client that keeps sending invalid requests must not cause ejections."""
    for _ in range(12):
        assert post(hedgerow, "/v1/chat/completions", bodies.chat(TOO_LONG, 4)).status_code == 400
    before = [engine.state().finished for engine in engines]
    for _ in range(12):
        answer = post(hedgerow, "/v1/chat/completions", bodies.chat("fine", 2))
        assert answer.status_code == 200, answer.text
    after = [engine.state().finished for engine in engines]
    assert all(now > then for now, then in zip(after, before, strict=True))


def test_sdk_understands_the_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(
            model="no-such-model", messages=[{"role": "user", "content": "hello"}]
        )
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.completions.create(model=MODEL, prompt=TOO_LONG, max_tokens=1)
    assert "maximum context length" in too_long.value.message


def test_fields_the_router_does_not_know_survive(hedgerow: Hedgerow) -> None:
    """`allowed_token_ids` and `return_token_ids` are engine fields: both must have their effect."""
    digits = [ASCII_IDS[CHARACTERS.index(digit)] for digit in "0123456789"]
    body = bodies.chat("digits only", TOKENS, return_token_ids=True, of_no_known_use={"x": [1]})
    answer = post(hedgerow, "/v1/chat/completions", {**body, "allowed_token_ids": digits})
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    assert choice["message"]["content"].isdecimal()
    assert set(choice["token_ids"]) <= set(digits)


def test_bodies_pass_as_they_came(hedgerow: Hedgerow) -> None:
    """Odd but valid JSON: whitespace, escapes, number formats, the model as the last key."""
    body = json.dumps({**bodies.chat("spelling", TOKENS), "model": MODEL}, indent=3)
    body = body.replace('"spelling"', '"\\u0073pelling"').replace(": 0,", ": 0.0e-1,")
    answer = httpx.post(
        f"{hedgerow.url}/v1/chat/completions",
        content=body,
        headers={"content-type": "application/json; charset=utf-8"},
        timeout=TIMEOUT_S,
    )
    assert answer.status_code == 200, answer.text
    plain = post(hedgerow, "/v1/chat/completions", bodies.chat("spelling", TOKENS))
    assert answer.json()["choices"] == plain.json()["choices"]


def test_other_paths_reach_an_engine(engines: Engines, hedgerow: Hedgerow) -> None:
    """Unknown paths are forwarded; the 404 for an unsupported one is the engine's own."""
    for path in ("/version", "/no/such/endpoint"):
        direct = httpx.get(f"{engines[0].url}{path}", timeout=TIMEOUT_S)
        relayed = httpx.get(f"{hedgerow.url}{path}", timeout=TIMEOUT_S)
        assert (relayed.status_code, relayed.content) == (direct.status_code, direct.content)
