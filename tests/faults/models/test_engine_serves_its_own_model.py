"""An engine that ignores a body's `model` and serves its own.

A key that may not use that model is refused at such an engine, unless the body chooses one of the
key's adapters.
"""

from pathlib import Path
from typing import Any

import pytest

from router.config.model import Keys
from router.core.errors import Reason
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness.behaviours import json_ok
from tests.harness.control import MODELS, Control
from tests.harness.messages import json_response, post_json
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.running import Router, assert_error, running, scenario

CHAT = "/v1/chat/completions"


def lists(*names: str, adapters: tuple[str, ...] = ("lora",)) -> Control:
    """An engine that lists its own model by these names, and the adapters of that model."""
    own = [{"id": name, "object": "model", "parent": None} for name in names]
    more = [{"id": name, "object": "model", "parent": "base"} for name in adapters]

    async def tell(connection: ReplicaConnection) -> None:
        await connection.send(json_response({"object": "list", "data": own + more}))

    return Control(at={MODELS: tell})


def posts(router: Router) -> int:
    return sum(len([r for r in each.requests if r.method == "POST"]) for each in router.replicas)


# The rules of each engine and path are those of `tests/intake/test_authority.py`.
CASES: list[tuple[str, str, dict[str, Any], int]] = [
    ("sglang", "/generate", {}, 403),
    ("sglang", "/generate", {"lora_path": ["lora", None]}, 403),
    ("sglang", "/generate", {"lora_path": "lora"}, 200),
    ("sglang", CHAT, {}, 403),  # SGLang does not know an adapter by its plain name
    ("tgi", "/generate", {"parameters": {"adapter_id": "lora"}}, 200),
    ("tgi", CHAT, {}, 200),
    ("vllm", "/v1/x", {}, 200),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{e}{p}{n}" for n, (e, p, *_) in enumerate(CASES)])
@scenario
async def test_a_key_for_an_adapter(
    case: tuple[str, str, dict[str, Any], int], tmp_path: Path
) -> None:
    engine, path, members, status = case
    keys = Keys(file=file_of(tmp_path, acme(models=["lora"])))
    replica = HostileReplica(json_ok, lists("base"))
    async with running(replica, replica={"engine": engine}, keys=keys) as router:
        body = {"model": "lora", "text": "hi", "messages": [], **members}
        answer = await router.ask(post_json(path, body, BEARER), "POST")
        assert answer.status == status, answer
        assert posts(router) == (status == 200)
        if status == 403:
            assert_error(answer, Reason.MODEL_NOT_ALLOWED, 403)
            assert "engine ignores `model`" in answer.error()["message"]
        body["model"] = "base"
        assert (await router.ask(post_json(path, body), "POST")).status == 200  # no key


@scenario
async def test_a_configured_list_does_not_hide_the_model_behind_an_adapter(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(models=["lora"])))
    replica = HostileReplica(json_ok, lists("base"))
    rules = {"engine": "sglang", "models": ("lora",)}
    async with running(replica, replica=rules, keys=keys) as router:
        asked = post_json("/generate", {"model": "lora", "text": "hi"}, BEARER)
        assert_error(await router.ask(asked, "POST"), Reason.MODEL_NOT_ALLOWED, 403)
        assert posts(router) == 0
