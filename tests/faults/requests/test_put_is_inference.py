"""PUT and PATCH bodies that engines run as inference (SGLang: PUT /generate).

The limits of keys, the priority ceiling and the queue apply to them as to POST.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Keys, Priority
from router.core.errors import Reason
from router.intake.body import SCAN_ABOVE
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.faults.requests.test_unknown_posts import waits_in_the_queue
from tests.harness.behaviours import json_ok
from tests.harness.messages import request
from tests.harness.running import assert_error, running, scenario

METHODS = ["PUT", "PATCH"]
PATHS = ["/generate", "/v1/chat/completions", "/v1/unknown"]


def carrying(method: str, path: str, *fields: str, **members: Any) -> bytes:
    body = json.dumps({"model": "m", "text": "hello", **members}).encode()
    return request(path, "Content-Type: application/json", *fields, method=method, body=body)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", METHODS)
@scenario
async def test_a_key_limits_its_models_and_requests(method: str, path: str, tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(models=["m"], requests_per_minute=1)))
    async with running(json_ok, keys=keys) as router:
        other = carrying(method, path, BEARER, model="secret")
        assert_error(await router.ask(other, method), Reason.MODEL_NOT_ALLOWED)
        assert router.replica.requests == []
        own = carrying(method, path, BEARER)
        assert (await router.ask(own, method)).status == 200
        assert_error(await router.ask(own, method), Reason.KEY_REQUESTS)


@pytest.mark.parametrize("size", [10, SCAN_ABOVE])
@pytest.mark.parametrize("method", METHODS)
@scenario
async def test_a_priority_does_not_pass(method: str, size: int) -> None:
    rules = Priority(ceiling="normal")
    async with running(json_ok, replica={"engine": "sglang"}, priority=rules) as router:
        asked = carrying(method, "/generate", priority=1_000_000, rid="victim", x="y" * size)
        assert (await router.ask(asked, method)).status == 200
        (seen,) = [r for r in router.replica.requests if r.method == method]
        members = json.loads(seen.body)
        assert members["priority"] <= 0
        assert members.get("rid") != "victim"


@pytest.mark.parametrize("path", PATHS)
@scenario
async def test_it_waits_in_the_queue(path: str) -> None:
    await waits_in_the_queue(carrying("PUT", path, tag="put", stream=False), "put")
