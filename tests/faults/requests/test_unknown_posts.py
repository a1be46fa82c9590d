"""A POST to an unknown path may be inference: it is queued, counted and limited.

Such a POST is never edited, copied or sent a second time.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Keys, Priority
from router.core.errors import Reason
from tests.app.pages import page
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness.behaviours import answer, echo, fin_after_request, in_turn, json_ok
from tests.harness.messages import json_response, post_json, response
from tests.harness.queueing import ONE, Turnstile, queue, send, waiting
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, routed, running, scenario

PATHS = ["/v1/chat/completions/batch", "/vertex_generate", "/api/embed", "/v1/images/generations"]
BODY: dict[str, Any] = {"model": "m", "input": "hello", "stream": False}


async def waits_in_the_queue(asked: bytes, tag: str) -> None:
    """Fail unless the request with this tag waits while the only slot is in use."""
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        client = await router.send(asked)
        await eventually(lambda: waiting(router) == 1, "it waits")
        turnstile.open(2)
        for one in (first, client):
            assert (await one.recv_response()).status == 200
        assert turnstile.tags == ["first", tag]


@pytest.mark.parametrize("path", PATHS)
@scenario
async def test_it_waits_in_the_queue(path: str) -> None:
    await waits_in_the_queue(post_json(path, BODY | {"tag": "unknown"}), "unknown")


@scenario
async def test_it_counts_for_the_limits_and_the_usage_of_its_key(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(requests_per_minute=4)))
    async with running(json_ok, keys=keys) as router:
        for path in PATHS:
            assert (await router.ask(post_json(path, BODY, BEARER), "POST")).status == 200
        answer = await router.ask(post_json("/v1/unknown", BODY, BEARER), "POST")
        assert_error(answer, Reason.KEY_REQUESTS)
        (told,) = (await page(router, "/usage"))["tenants"]
        assert told["tenant"] == "acme"
        assert (
            sum(used["requests"] for used in told["classes"].values()) == 5
        )  # the count includes the refused request


@scenario
async def test_its_tokens_are_estimated_by_its_size(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(tokens_per_minute=1000)))
    async with running(json_ok, keys=keys) as router:
        large = BODY | {"input": "x" * 8000}
        asked = post_json("/v1/images/generations", large, BEARER)
        assert (await router.ask(asked, "POST")).status == 200
        answer = await router.ask(asked, "POST")
        assert_error(answer, Reason.KEY_TOKENS)


@routed(echo, replica={"engine": "vllm"})
async def test_it_goes_on_as_it_came(router: Router) -> None:
    """Nothing is written into the body of such a request, and its own priority is not read."""
    body = {"priority": {"of": "another API"}, "service_tier": 5, "stream_options": 1}
    answer = await router.ask(post_json("/v1/images/generations", BODY | body), "POST")
    assert answer.status == 200
    assert json.loads(answer.json()["body"]) == BODY | body


@pytest.mark.parametrize("reused", [False, True])
@scenario
async def test_it_is_sent_once(reused: bool) -> None:
    """The request is lost, refused by a busy engine, or sent on a stale connection.

    The effect of sending such a request again is unknown.
    """
    path = "/v1/images/generations"
    first = in_turn(json_ok, then=fin_after_request) if reused else fin_after_request
    async with running(first, json_ok, policy="round_robin") as router:
        sent = 8
        answers = [(await router.ask(post_json(path, BODY), "POST")).status for _ in range(sent)]
        assert set(answers) <= {200, 502}
        assert 502 in answers
        asked = [r for each in router.replicas for r in each.requests if r.method == "POST"]
        assert len(asked) == sent


@scenario
async def test_it_is_not_hedged() -> None:
    rules = Priority(ceiling="critical")
    async with running(json_ok, json_ok, priority=rules) as router:
        for _ in range(20):
            asked = post_json("/v1/images/generations", BODY, "x-priority: critical", "x-hedge: on")
            assert (await router.ask(asked, "POST")).status == 200
        found = [r for each in router.replicas for r in each.requests if r.method == "POST"]
        assert len(found) == 20


@pytest.mark.parametrize("path", [*PATHS, "/v1/unknown"])
@scenario
async def test_the_ceiling_of_its_key_holds(path: str, tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(ceiling="low")))
    async with running(json_ok, keys=keys) as router:
        asked = post_json(path, BODY, BEARER, "x-priority: critical")
        assert (await router.ask(asked, "POST")).status == 200
        (line,) = await router.log(1)
        assert line["class"] == "low"


@routed(json_ok)
async def test_urgency_by_header_and_a_model_that_is_named(router: Router) -> None:
    await router.ask(post_json("/vertex_generate", BODY, "x-priority: low"), "POST")
    (line,) = await router.log(1)
    assert (line["class"], line["model"], line["kind"]) == ("low", "m", "other")


TEXT: dict[str, bytes] = {
    "json": json_response({"out": "word " * 2000}),
    "vertex": json_response({"predictions": [{"text": "word " * 2000}]}),
    "text": response(200, body=b"word " * 2000, content_type="text/plain; charset=utf-8"),
    "lines": response(200, body=b'{"a":1}\n' * 2000, content_type="application/x-ndjson"),
    "created": json_response({"out": "word " * 2000}, 201),
    "counts of many": json_response({"predictions": [{"completion_tokens": 200}] * 10}),
}


@pytest.mark.parametrize("name", TEXT)
@scenario
async def test_an_answer_without_counts_is_estimated_by_its_size(name: str, tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(tokens_per_minute=1000)))
    async with running(answer(TEXT[name]), keys=keys) as router:
        asked = post_json("/vertex_generate", BODY, BEARER)
        assert (await router.ask(asked, "POST")).status in (200, 201)
        assert_error(await router.ask(asked, "POST"), Reason.KEY_TOKENS)
        first, _ = await router.log(2)
        assert first["output_tokens"] >= 2000
        assert first.get("exact") is not True
        (told,) = (await page(router, "/usage"))["tenants"]
        assert told["output_tokens"] == first["output_tokens"]


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/v1/images/generations", json_response({"data": [{"b64_json": "A" * 100_000}]})),
        ("/api/embed", json_response({"embeddings": [[0.25] * 10_000]})),
        ("/v1/x", response(200, body=b"\x89PNG" * 10_000, content_type="image/png")),
    ],
)
@scenario
async def test_what_is_no_text_has_no_tokens(path: str, data: bytes, tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(tokens_per_minute=1000)))
    async with running(answer(data), keys=keys) as router:
        for _ in range(3):
            asked = post_json(path, BODY, BEARER)
            assert (await router.ask(asked, "POST")).status == 200
