"""A client may name a model by an alias; a replica gets the model's own name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.core.errors import Reason
from tests.faults.names.engines import Engine, settings
from tests.harness.messages import chat, chat_body, json_response, post_json, request
from tests.harness.replica import ReplicaConnection
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
async def test_the_name_and_the_priority_of_a_body_change_together() -> None:
    engine = Engine("llama", "other")
    body = {**chat_body(model="gpt-4o"), "priority": 5}
    async with running(engine, **ALIAS) as router:
        assert (await router.ask(post_json("/v1/chat/completions", body))).status == 200
        sent = json.loads(engine.bodies[0])
        assert sent["model"] == "llama"
        assert sent["messages"] == body["messages"]


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
async def test_an_alias_of_a_model_that_no_replica_serves_is_not_listed() -> None:
    async with running(Engine("llama"), Engine("x"), **settings(models={"gpt": "no"})) as router:
        assert {entry["id"] for entry in await listed(router)} == {"llama", "x"}
        response = await router.ask(request("/v1/models/gpt"))
        assert_error(response, Reason.MODEL_NOT_FOUND)
        assert_error(await router.ask(chat(model="gpt")), Reason.MODEL_NOT_FOUND)


@scenario
async def test_a_form_gets_the_models_name() -> None:
    form = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\x00\xff\r\n'
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--b--\r\n'
    )

    async def engine(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"text": "hi"}))

    async with running(engine, **settings(models={"whisper-1": "m"})) as router:
        kind = "Content-Type: multipart/form-data; boundary=b"
        path = "/v1/audio/transcriptions"
        data = request(path, kind, method="POST", body=form % b"whisper-1")
        assert (await router.ask(data)).status == 200
        assert router.replica.requests[0].body == form % b"m"


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
