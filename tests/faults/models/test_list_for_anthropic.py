"""A client of Anthropic's API gets the list of models in the format of that API."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.control import Control
from tests.harness.messages import request
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
        missing = await router.ask(request("/v1/models/x", field))
        assert_error(missing, Reason.MODEL_NOT_FOUND)
