"""SGLang's /vertex_generate uses `parameters` as the request itself.

A client's request ID in `parameters` does not reach the engine, which aborts every request whose ID
begins with it.
"""

import json
from typing import Any

import pytest

from router.intake.body import SCAN_ABOVE
from tests.harness.behaviours import json_ok
from tests.harness.messages import post_json
from tests.harness.running import running, scenario

VERTEX = "/vertex_generate"


async def sent(body: Any, engine: str = "sglang", path: str = VERTEX) -> Any:
    """The body that the engine receives."""
    async with running(json_ok, replica={"engine": engine}) as router:
        assert (await router.ask(post_json(path, body), "POST")).status == 200
        (asked,) = [r for r in router.replica.requests if r.method == "POST"]
        return json.loads(asked.body)


@pytest.mark.parametrize("rid", ["", "victim", ["a", "b"], 5])
@scenario
async def test_it_is_taken_back(rid: Any) -> None:
    parameters = {"rid": rid, "sampling_params": {"max_new_tokens": 4}}
    body = {"model": "m", "instances": [{"text": "x"}], "parameters": parameters}
    assert await sent(body) == {**body, "parameters": {**parameters, "rid": None}}


@scenario
async def test_it_may_be_spelled_in_other_ways() -> None:
    body = b'{"model":"m","parameters":{"a":1},"parameters" : {"r\\u0069d":"x","rid":"y"} }'
    assert await sent(body) == {"model": "m", "parameters": {"rid": None}}


@pytest.mark.parametrize(
    ("parameters", "engine"),
    [
        ({"rid": None, "a": 1}, "sglang"),
        ({"a": {"rid": "x"}}, "sglang"),
        (None, "sglang"),
        ("rid", "sglang"),
        ({"rid": "x"}, "tgi"),
    ],
)
@scenario
async def test_what_names_nothing_stays(parameters: Any, engine: str) -> None:
    body = {"model": "m", "parameters": parameters}
    assert await sent(body, engine) == body


@scenario
async def test_both_names_are_taken_back() -> None:
    body = {"model": "m", "rid": "x", "parameters": {"rid": "y"}}
    assert await sent(body) == {"model": "m", "rid": None, "parameters": {"rid": None}}


@scenario
async def test_a_large_body_that_is_not_read_names_nothing() -> None:
    """A member that is too long to be kept makes all others unknown, including the ID."""
    body = {"model": "m", "rid": "", "user": "u" * 5000, "x": "y" * SCAN_ABOVE}
    got = await sent(body)
    assert got == {**body, "rid": None}
