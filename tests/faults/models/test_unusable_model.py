"""A `model` value that the router cannot route by."""

import json
from typing import Any

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import post_json
from tests.harness.replica import HostileReplica
from tests.harness.running import TOLD_NOTHING, Router, assert_error, routed, running, scenario

PATH = "/v1/chat/completions"


NOT_NAMES = [1, 1.5, True, None, [], {}, ["m"], "", "x" * 1_000_000]
NOT_KNOWN = ["nobody", "M", "m ", "m\x00", "é", "\ud800"]


@pytest.mark.parametrize("model", [*NOT_NAMES, *NOT_KNOWN])
@routed(echo)
async def test_it_is_refused(router: Router, model: Any) -> None:
    answer = await router.ask(post_json(PATH, {"model": model, "messages": []}))
    if model is None:  # a null `model` is the same as none
        assert answer.status == 200
        return
    assert answer.status in (400, 404)
    assert answer.error()["code"] in ("bad_model", "model_not_found", "bad_json")
    assert not router.replica.requests
    assert len(json.dumps(await router.log())) < 2000


@routed(echo)
async def test_unknown_is_openai_shaped(router: Router) -> None:
    answer = await router.ask(post_json(PATH, {"model": "nobody"}))
    assert_error(answer, Reason.MODEL_NOT_FOUND)
    assert "nobody" in answer.error()["message"]
    assert answer.error()["param"] == "model"
    assert await router.reason() == "model_not_found"


@routed(echo, echo, replica=TOLD_NOTHING)
async def test_missing_passes_with_one_pool(router: Router) -> None:
    answer = await router.ask(post_json(PATH, {"messages": []}))
    assert answer.json()["body"] == '{"messages": []}'


@scenario
async def test_missing_is_refused_with_two_pools() -> None:
    one = HostileReplica(echo, models=("a",))
    two = HostileReplica(echo, models=("b",))
    async with running(one, two, replica={"models": None}, policy="round_robin") as router:
        for model in ("a", "b"):
            await ready(router, model)
        answer = await router.ask(post_json(PATH, {"messages": []}))
        assert_error(answer, Reason.MODEL_REQUIRED)
        for model, replica in (("a", one), ("b", two)):
            before = len(replica.requests)
            assert (await router.ask(post_json(PATH, {"model": model}))).status == 200
            assert len(replica.requests) == before + 1


async def ready(router: Any, model: str) -> None:
    """Wait until the router has learned that a replica serves `model`."""
    while (await router.ask(post_json(PATH, {"model": model}))).status != 200:
        pass
