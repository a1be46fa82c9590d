"""A replica that lists more models than the limit: the first ones are served, the rest ignored."""

from __future__ import annotations

from router.core.errors import Reason
from router.fleet.engines.common.models import MODELS_MOST
from tests.harness.behaviours import json_ok
from tests.harness.control import Control
from tests.harness.messages import chat, request
from tests.harness.replica import HostileReplica
from tests.harness.running import assert_error, running, scenario


@scenario
async def test_the_first_names_are_served() -> None:
    names = tuple(f"m{n:05}" for n in range(MODELS_MOST + 1000))
    one = HostileReplica(json_ok, control=Control(models=names))
    async with running(one) as router:
        listed = await router.ask(request("/v1/models"))
        assert [entry["id"] for entry in listed.json()["data"]] == list(names[:MODELS_MOST])
        assert (await router.ask(chat(model=names[MODELS_MOST - 1]))).status == 200
        refused = await router.ask(chat(model=names[MODELS_MOST]))
        assert_error(refused, Reason.MODEL_NOT_FOUND)
        assert f"`m00019` and {MODELS_MOST - 20} more" in refused.error()["message"]
