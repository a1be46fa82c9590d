"""A client of Anthropic's API gets the list of models in the format of that API."""

from pathlib import Path

import pytest

from router.config.model import Keys
from router.core.errors import Reason
from tests.app.test_keys_at_the_door import acme, file_of
from tests.harness.behaviours import json_ok
from tests.harness.control import Control
from tests.harness.messages import request
from tests.harness.reading import Response
from tests.harness.replica import HostileReplica
from tests.harness.running import assert_error, running, scenario

SHOWN = [
    {"type": "model", "id": n, "display_name": n, "created_at": "1970-01-01T00:00:01Z"}
    for n in ("m", "n")
]


@pytest.mark.parametrize("field", ["anthropic-version: 2023-06-01", "Anthropic-Version:x"])
@scenario
async def test_the_version_header_selects_it(field: str) -> None:
    one = HostileReplica(json_ok, control=Control(models=("m", "n")))
    async with running(one) as router:
        listed = await router.ask(request("/v1/models?limit=1000", field))
        ends = {"has_more": False, "first_id": "m", "last_id": "n"}
        assert listed.json() == {"data": SHOWN, **ends}
        assert (await router.ask(request("/v1/models/n", field))).json() == SHOWN[1]
        assert (await router.ask(request("/v1/models"))).json()["object"] == "list"
        assert (await router.ask(request("/v1/models/n"))).json()["object"] == "model"
        assert_error(await router.ask(request("/v1/models/x")), Reason.MODEL_NOT_FOUND)
        missing = await router.ask(request("/v1/models/x", field))
        assert missing.status == 404
        assert_is_anthropics(missing, "not_found_error", Reason.MODEL_NOT_FOUND)


def assert_is_anthropics(answer: Response, kind: str, reason: Reason) -> None:
    body = answer.json()
    assert (body["type"], body["error"]["type"], body["error"]["code"]) == ("error", kind, reason)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m?a=b"])
@scenario
async def test_refusals_have_its_shape(path: str, tmp_path: Path) -> None:
    version = "anthropic-version: 2023-06-01"
    rules = Keys(file=file_of(tmp_path, acme()), required=True)
    async with running(json_ok, keys=rules) as router:
        answer = await router.ask(request(path, version))
        assert answer.status == 401
        assert_is_anthropics(answer, "authentication_error", Reason.KEY_REQUIRED)
        assert_error(await router.ask(request(path)), Reason.KEY_REQUIRED)
