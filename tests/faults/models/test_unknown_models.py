"""An unlisted model name: the engine answers, or the router lists the known names."""

import json
from typing import Any

import pytest

from router.core.errors import Reason
from tests.faults.process.metrics import scrape
from tests.harness.behaviours import answer, echo, json_ok
from tests.harness.control import Control
from tests.harness.messages import chat, chat_body, json_response, request, without_priority
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, assert_error, routed, running, scenario


@pytest.mark.parametrize(
    "replica",
    [
        {"engine": "llamacpp"},
        {"engine": "tgi"},
        {"engine": "other"},
        {"engine": "vllm", "unknown_models": "forward"},
        {"engine": "vllm", "models": ("*",)},
    ],
)
@scenario
async def test_it_goes_on_as_it_came(replica: dict[str, Any]) -> None:
    async with running(echo, replica={"models": ("m",)} | replica) as router:
        answer = await router.ask(chat(model="gpt-x"))
        assert answer.status == 200
        (asked,) = [r for r in router.replica.requests if r.method == "POST"]
        assert json.loads(without_priority(asked.body)) == chat_body(model="gpt-x")
        (line,) = await router.log(1)
        assert line["model"] == "gpt-x"


@routed(
    answer(json_response({"error": {"message": "mine"}}, 404)),
    replica={"models": ("m",), "engine": "other"},
)
async def test_the_engines_own_refusal_is_passed_on(router: Router) -> None:
    found = await router.ask(chat(model="gpt-x"))
    assert (found.status, found.json()) == (404, {"error": {"message": "mine"}})


@pytest.mark.parametrize(
    "replica", [{"engine": "vllm"}, {"engine": "llamacpp", "unknown_models": "reject"}]
)
@scenario
async def test_the_refusal_names_what_there_is(replica: dict[str, Any]) -> None:
    async with running(json_ok, replica={"models": ("m", "n")} | replica) as router:
        answer = await router.ask(chat(model="gpt-x"))
        assert_error(answer, Reason.MODEL_NOT_FOUND)
        told = "the model `gpt-x` does not exist; served here: `m`, `n`"
        assert answer.error()["message"] == told
        assert_error(await router.ask(request("/v1/models/gpt-x")), Reason.MODEL_NOT_FOUND)
        assert not [r for r in router.replica.requests if r.method == "POST"]


@scenario
async def test_an_adapter_goes_where_its_model_is() -> None:
    """SGLang serves `model:adapter` and lists only the model."""
    base = HostileReplica(echo, Control(models=("m",), owned_by="sglang"))
    other = HostileReplica(echo, Control(models=("n",)))
    async with running(base, other, replica={"models": None}) as router:
        await eventually(lambda: len(router.app.parts.fleet.serving.ready) == 2, "both are up")
        for _ in range(4):
            answer = await router.ask(chat(model="m:fr"))
            assert answer.status == 200
            assert json.loads(answer.json()["body"])["model"] == "m:fr"
        assert len([r for r in base.requests if r.method == "POST"]) == 4
        assert_error(await router.ask(chat(model="n:fr")), Reason.MODEL_NOT_FOUND)
        assert not [r for r in other.requests if r.method == "POST"]


@routed(json_ok, replica={"models": ("m",), "engine": "tgi"})
async def test_invented_names_are_no_labels(router: Router) -> None:
    for n in range(5):
        assert (await router.ask(chat(model=f"gpt-{n}"))).status == 200
    await router.log(5)
    labels = [str(labels) for _, labels in await scrape(router.app.admin_port)]
    assert not [label for label in labels if "gpt-" in label]
