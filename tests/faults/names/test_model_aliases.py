"""A client may name a model by an alias; a replica gets the model's own name."""

import json
from typing import Any

import pytest

from router.core.errors import Reason
from tests.faults.names.engines import Engine, settings
from tests.harness.messages import chat, chat_body, post_json, request
from tests.harness.running import Router, assert_error, running, scenario

ALIAS = settings(models={"gpt-4o": "llama"})
RESTORED = settings(models={"gpt-4o": {"targets": ["llama"], "restore_name": True}})


async def listed(router: Router) -> list[dict[str, Any]]:
    response = await router.ask(request("/v1/models"))
    found: list[dict[str, Any]] = json.loads(response.body)["data"]
    return found


@scenario
async def test_only_the_name_changes_on_the_way_to_the_replica() -> None:
    engine = Engine("llama", "other")
    body = b'{ "model" : "gpt-4o","x":{"model":"gpt-4o"},\n"messages":[],"seed": 1.50}'
    async with running(engine, replica={"priority": "none"}, **ALIAS) as router:
        response = await router.ask(post_json("/v1/chat/completions", body))
        assert json.loads(response.body)["model"] == "llama"
        assert engine.bodies == [body.replace(b'"gpt-4o"', b'"llama"', 1)]
        line = (await router.log())[0]
        assert (line["model"], line["served_model"]) == ("gpt-4o", "llama")


@scenario
async def test_a_name_that_is_no_alias_is_not_changed() -> None:
    engine = Engine("llama", "other")
    async with running(engine, replica={"priority": "none"}, **ALIAS) as router:
        body = json.dumps(chat_body(model="other")).encode()
        await router.ask(post_json("/v1/chat/completions", body))
        assert engine.bodies == [body]
        assert_error(await router.ask(chat(model="gpt-4")), Reason.MODEL_NOT_FOUND)
        await router.quiet()


@pytest.mark.parametrize("stream", [False, True])
@scenario
async def test_responses_get_the_clients_name_back(stream: bool) -> None:
    engine = Engine("llama", "other")
    async with running(engine, **RESTORED) as router:
        response = await router.ask(chat(model="gpt-4o", stream=stream))
        assert response.status == 200 and response.complete
        events = [e for e in response.events() if e != "[DONE]"] if stream else [response.body]
        assert [json.loads(each)["model"] for each in events] == ["gpt-4o"] * len(events)
        assert len(events) == (3 if stream else 1)
        assert engine.asked == ["llama"]
        # Other names are relayed as the replica writes them.
        response = await router.ask(chat(model="other"))
        assert json.loads(response.body)["model"] == "other"


@scenario
async def test_aliases_are_listed() -> None:
    async with running(Engine("llama", "other"), **ALIAS) as router:
        models = {entry["id"]: entry for entry in await listed(router)}
        assert set(models) == {"llama", "other", "gpt-4o"}
        assert {**models["llama"], "id": "gpt-4o"} == models["gpt-4o"]
        response = await router.ask(request("/v1/models/gpt-4o"))
        assert json.loads(response.body) == models["gpt-4o"]


@scenario
async def test_a_reload_changes_a_name_for_new_requests() -> None:
    engine = Engine("llama", "other")
    async with running(engine, **ALIAS) as router:
        await router.ask(chat(model="gpt-4o"))
        router.change(**settings(models={"gpt-4o": "other", "new": "llama"}))
        await router.app.reload()
        await router.ask(chat(model="gpt-4o"))
        await router.ask(chat(model="new"))
        assert engine.asked == ["llama", "other", "llama"]
        assert {e["id"] for e in await listed(router)} == {"llama", "other", "gpt-4o", "new"}
