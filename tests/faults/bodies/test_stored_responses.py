"""A stored response belongs to its creator: other parties get "not found"."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Keys
from router.core.errors import Reason
from router.intake.body import SCAN_ABOVE
from tests.app.test_keys_at_the_door import BEARER, OTHER, acme, file_of, umbrella
from tests.harness.behaviours import answer
from tests.harness.messages import json_response, post_json, request
from tests.harness.running import Router, assert_error, routed, running, scenario

MADE = {"id": "resp_1", "object": "response", "status": "completed", "output": []}
PATH = "/v1/responses"


engine = answer(json_response(MADE))


def asked(*fields: str, **more: Any) -> bytes:
    return post_json(PATH, {"model": "m", "input": "hi", "store": True} | more, *fields)


async def reaches(router: Router, *fields: str) -> bool:
    """Whether a party may show, continue and delete the response; all three or none."""
    found = []
    for message, method in (
        (request(f"{PATH}/resp_1", *fields), "GET"),
        (asked(*fields, previous_response_id="resp_1"), "POST"),
        (request(f"{PATH}/resp_1", *fields, method="DELETE"), "DELETE"),
    ):
        answer = await router.ask(message, method)
        if answer.status != 200:
            assert_error(answer, Reason.STATE_LOST)
        found.append(answer.status == 200)
    assert len(set(found)) == 1, found
    return found[0]


@pytest.mark.parametrize("required", [True, False])
@scenario
async def test_a_response_of_one_key(tmp_path: Path, required: bool) -> None:
    path = file_of(tmp_path, acme(), umbrella())
    async with running(engine, keys=Keys(file=path, required=required)) as router:
        assert (await router.ask(asked(BEARER), "POST")).status == 200
        assert not await reaches(router, OTHER)
        assert await reaches(router, BEARER)
        if not required:
            assert not await reaches(router)


@routed(engine)
async def test_a_response_of_an_unchecked_credential(router: Router) -> None:
    assert (await router.ask(asked(BEARER), "POST")).status == 200
    assert not await reaches(router, OTHER)
    assert not await reaches(router)
    assert await reaches(router, BEARER)


@routed(engine)
async def test_a_response_without_an_owner(router: Router) -> None:
    assert (await router.ask(asked(), "POST")).status == 200
    assert await reaches(router)
    assert await reaches(router, BEARER)


@pytest.mark.parametrize("required", [True, False])
@scenario
async def test_a_response_from_before_the_start(tmp_path: Path, required: bool) -> None:
    """The owner of a response from before the router's start is unknown."""
    path = file_of(tmp_path, acme(), umbrella())
    async with running(engine, keys=Keys(file=path, required=required)) as router:
        assert await reaches(router, BEARER) != required


@pytest.mark.parametrize("stream", [False, True])
@routed(engine)
async def test_another_party_does_not_take_it_over_by_its_name(
    router: Router, stream: bool
) -> None:
    """vLLM and SGLang name a response by the body's `request_id`."""
    assert (await router.ask(asked(BEARER), "POST")).status == 200
    taken = asked(OTHER, request_id="resp_1", stream=stream)
    assert (await router.ask(taken, "POST")).status == 200
    assert (await router.ask(asked(), "POST")).status == 200
    assert not await reaches(router, OTHER)
    assert not await reaches(router)
    assert await reaches(router, BEARER)


@routed(engine)
async def test_a_party_that_reads_a_response_does_not_own_it(router: Router) -> None:
    """The response was created before the router's start: another party that knows its ID may
    request it before its owner does.
    """
    assert await reaches(router, OTHER)
    assert await reaches(router, BEARER)


@pytest.mark.parametrize("size", [1, SCAN_ABOVE])
@routed(engine)
async def test_a_client_does_not_name_its_response(router: Router, size: int) -> None:
    """With an ID chosen by the client, the engine could overwrite another party's response."""
    for _ in range(2):
        body = asked(OTHER, request_id="resp_1", input="x" * size)
        assert (await router.ask(body, "POST")).status == 200
    seen = [json.loads(r.body) for r in router.replica.requests if r.method == "POST"]
    names = {members["request_id"] for members in seen}
    assert len(names) == 2
    assert all(re.fullmatch("resp_[0-9a-f]{24}-[0-9]{2}", name) for name in names)
    assert (await router.ask(asked(BEARER), "POST")).status == 200
    last = [r for r in router.replica.requests if r.method == "POST"][-1]
    assert "request_id" not in json.loads(last.body)  # the engine generates an ID
