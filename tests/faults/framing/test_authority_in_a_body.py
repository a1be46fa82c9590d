"""Bodies with members that give extra rights at an engine, but that the router cannot check.

Examples are an adapter for a key with a list of models, and a priority on an unknown path. Such a
body is refused.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Keys, Priority
from router.core.errors import Reason
from router.intake.body import SCAN_ABOVE
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness.behaviours import json_ok
from tests.harness.messages import post_json
from tests.harness.reading import Request
from tests.harness.running import Router, assert_error, running, scenario

CHAT = "/v1/chat/completions"
BATCH = "/v1/chat/completions/batch"
VERTEX = "/vertex_generate"
LOW, URGENT = {"engine": "sglang"}, 1_000_000


def posts(router: Router) -> list[Request]:
    return [request for request in router.replica.requests if request.method == "POST"]


PRIORITIES: list[tuple[str, Any]] = [
    (BATCH, {"priority": -URGENT}),
    (BATCH, {"priority": 1.0}),
    (BATCH, {"priority": f" {URGENT} "}),
    (BATCH, {"priority": True}),
    (BATCH, {"priority": -URGENT, "x": "y" * SCAN_ABOVE}),
    (BATCH, b'{"model":"m","pri\\u006frity":-9}'),
    (BATCH, b'{"model":"m","priority":null,"priority":-1e999}'),
    (VERTEX, {"parameters": {"priority": URGENT}}),
    (VERTEX, {"parameters": {"priority": URGENT}, "x": "y" * SCAN_ABOVE}),
    (VERTEX, b'{"model":"m","parameters":{},"parameters":{"a":1,"priorit\\u0079":7}}'),
]


@pytest.mark.parametrize(("path", "body"), PRIORITIES, ids=range(len(PRIORITIES)))
@scenario
async def test_a_priority_that_is_not_rewritten(path: str, body: Any) -> None:
    given = body if isinstance(body, bytes) else json.dumps({"model": "m", **body}).encode()
    async with running(json_ok, replica=LOW, priority=Priority(ceiling="normal")) as router:
        answer = await router.ask(post_json(path, given), "POST")
        assert_error(answer, Reason.BAD_PRIORITY, 400)
        assert answer.error()["param"].endswith("priority")
        assert "x-priority" in answer.error()["message"]
        assert posts(router) == []


@pytest.mark.parametrize(
    ("engine", "ceiling", "priority"),
    [
        ("sglang", "critical", URGENT),  # `critical` is no limit
        ("llamacpp", "normal", URGENT),  # llama.cpp has no priorities
        ("sglang", "normal", "high"),  # the value is not a number
        ("sglang", "normal", None),
        ("sglang", "normal", {"of": "another API"}),
    ],
)
@scenario
async def test_what_no_ceiling_concerns_passes(engine: str, ceiling: Any, priority: Any) -> None:
    rules = Priority(ceiling=ceiling)
    async with running(json_ok, replica={"engine": engine}, priority=rules) as router:
        body = {"model": "m", "priority": priority, "parameters": {"priority": priority}}
        assert (await router.ask(post_json(BATCH, body), "POST")).status == 200
        assert json.loads(posts(router)[0].body) == body


@scenario
async def test_a_body_that_an_engine_reads_and_the_router_does_not(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme()))
    async with running(json_ok, replica=LOW, keys=keys) as router:
        body = json.dumps({"model": "m", "priority": URGENT}).encode()
        hidden = body.decode().encode("utf-16")
        answer = await router.ask(post_json(BATCH, hidden, BEARER), "POST")
        assert_error(answer, Reason.UNREAD_BODY, 415)
        hidden = body[:-1] + b',"x":NaN}'
        answer = await router.ask(post_json(BATCH, hidden, BEARER), "POST")
        assert_error(answer, Reason.BAD_PRIORITY, 400)
        assert posts(router) == []


ADAPTERS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"lora_path": "secret"}),
    ("/generate", {"lora_path": ["m", "secret"]}),
    ("/generate", {"lora_path": {"a": 1}}),
    ("/generate", {"lora_path": "secret", "x": "y" * SCAN_ABOVE}),
    ("/generate", {"parameters": {"adapter_id": "secret"}}),
    (VERTEX, {"parameters": {"lora_path": "secret"}}),
    ("/v1/x", {"lora_path": "secret"}),
    ("/completion", {"lora": [{"id": 1, "scale": 1.0}]}),
    (CHAT, {"lora": [{"id": 1, "scale": 1.0}], "x": "y" * SCAN_ABOVE}),
    (CHAT, {"lora": []}),  # turns off the adapters that llama.cpp was started with
    ("/v1/x", {"lora": {"path": "/secret"}}),
    (CHAT, {"lora_request": {"lora_name": "n", "lora_path": "/secret"}}),
]


LONG = [
    {"lora_path": ["m"] * 100_000},
    {"lora_path": "m" * 400_000},
    {"parameters": {"lora_path": "m", "x": [1] * 1_000_000}},
]


@pytest.mark.parametrize("members", LONG, ids=["list", "text", "parameters"])
@scenario
async def test_a_value_that_takes_long_to_check_is_refused(
    members: dict[str, Any], tmp_path: Path
) -> None:
    keys = Keys(file=file_of(tmp_path, acme(models=["m", "n"])))
    async with running(json_ok, replica=LOW, keys=keys) as router:
        body = {"model": "m", "text": "hi", **members}
        answer = await router.ask(post_json("/generate", body, BEARER), "POST")
        assert_error(answer, Reason.UNREAD_BODY, 415)
        assert posts(router) == []


@pytest.mark.parametrize(("path", "members"), ADAPTERS, ids=range(len(ADAPTERS)))
@scenario
async def test_an_adapter_that_its_key_may_not_use(
    path: str, members: dict[str, Any], tmp_path: Path
) -> None:
    keys = Keys(file=file_of(tmp_path, acme(models=["m", "n"])))
    async with running(json_ok, replica=LOW, keys=keys) as router:
        body = {"model": "m", "text": "hi", **members}
        answer = await router.ask(post_json(path, body, BEARER), "POST")
        assert_error(answer, Reason.MODEL_NOT_ALLOWED, 403)
        assert posts(router) == []
        assert "this key" in answer.error()["message"]
        own = {"model": "m", "lora_path": ["n", None], "parameters": {"lora_path": "n"}}
        own |= {"lora": None}
        assert (await router.ask(post_json(path, own, BEARER), "POST")).status == 200
        assert (await router.ask(post_json(path, body), "POST")).status == 200  # no key
