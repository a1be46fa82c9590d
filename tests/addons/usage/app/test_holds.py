"""What a running request holds of its key's budget, before its engine has reported any count."""

import json
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from router.addons.usage.spending import Spending
from router.config.model import Keys, Prefix, Price, Replica, Usage as UsageConfig
from router.intake.body import SCAN_ABOVE
from tests.addons.usage.app.helpers import budgets_of
from tests.app.pages import page
from tests.app.tenants.acme import ACME, keys
from tests.faults.names.engines import settings
from tests.harness.behaviours import hang, stream_then_hang
from tests.harness.messages import post_json, role, token
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, running, scenario

ASSUMED = 1024  # the output that is assumed before the first answer of a key


def limited(folder: Path) -> Keys:
    return keys(folder, tokens_per_day=1e9, cost_per_day=1e9)


async def held(router: Router, path: str, body: dict[str, Any]) -> Spending:
    """What one request holds while its engine is silent."""
    await router.send(post_json(path, body, ACME))
    budgets = budgets_of(router)
    await eventually(lambda: len(budgets.holds) == 1, "the request has come")
    return budgets.by_tenant["acme"]


@pytest.mark.parametrize(
    ("path", "body", "output"),
    [
        ("/v1/chat/completions", {"max_tokens": 5}, 5),
        ("/v1/chat/completions", {"max_completion_tokens": 1, "max_tokens": 500}, 500),
        ("/v1/completions", {"max_completion_tokens": 1, "max_tokens": 500}, 500),
        ("/v1/completions", {"max_completion_tokens": 1, "max_tokens": "500"}, 500),
        ("/v1/responses", {"max_tokens": 1}, ASSUMED),
        ("/v1/responses", {"max_tokens": 1, "max_output_tokens": 7}, 7),
        ("/generate", {"max_tokens": 1}, ASSUMED),
        ("/tomorrow/s/endpoint", {"max_tokens": 1}, ASSUMED),
    ],
)
@scenario
async def test_a_limit_that_the_engine_does_not_read_lowers_no_hold(
    tmp_path: Path, path: str, body: dict[str, Any], output: int
) -> None:
    async with running(hang, keys=limited(tmp_path)) as router:
        asked = {"model": "m", **body}
        spending = await held(router, path, asked)
        prompt = len(json.dumps(asked)) // 4
        # `usage.charges.other` is at least 10 tokens.
        prompt = max(prompt, 10 if path.startswith("/tomorrow") else 0)
        assert spending.held_tokens == prompt + output


@pytest.mark.parametrize(
    ("members", "answers"),
    [
        ({"text": "a"}, 1),
        ({"text": ["a", "b", "c"]}, 3),
        ({"text": ["a", "b"], "sampling_params": {"n": 4, "max_new_tokens": 9}}, 8),
        ({"text": ["a", "b"], "sampling_params": [{"n": 4}, {"max_new_tokens": 9}]}, 5),
        ({"input_ids": [1, 2, 3]}, 1),
        ({"input_ids": [[1, 2], [3]]}, 2),
        ({"input_embeds": [[0.5], [0.5]]}, 1),
        ({"input_embeds": [[[0.5], [0.5]], [[0.5]]]}, 2),
        ({"text": [], "sampling_params": "x"}, 1),
        ({"prompt": ["a", "b"]}, 2),
    ],
)
@scenario
async def test_a_list_holds_the_sum_of_its_prompts(
    tmp_path: Path, members: dict[str, Any], answers: int
) -> None:
    async with running(hang, keys=limited(tmp_path)) as router:
        spending = await held(router, "/generate", {"model": "m", **members})
        assert spending.held_tokens // ASSUMED == answers


@pytest.mark.parametrize(("name", "price"), [("chat", 2.0), ("m", 2.0), ("plain", 1.0)])
@scenario
async def test_the_hold_has_the_price_of_the_charge(
    tmp_path: Path, name: str, price: float
) -> None:
    """A model in a pool is routed by another name, which has no price."""
    prices = UsageConfig(
        prices={"m": Price(input=0.0, output=2e6), "*": Price(input=0.0, output=1e6)}
    )
    targets = {
        "chat": {"targets": [{"model": "m", "pool": "x"}]},
        "m": {"targets": [{"pool": "x"}]},
    }
    sections = settings(models=targets, pools={"x": {}})
    engine = HostileReplica(hang, models=("m", "plain"))
    engine.start()
    replica = Replica(url=engine.url, id="r0", pool="x")
    rules = {"keys": limited(tmp_path), "usage": prices, "replicas": (replica,), **sections}
    async with running(engine, **rules) as router:
        body = {"model": name, "max_tokens": 5}
        spending = await held(router, "/v1/chat/completions", body)
        assert spending.held_cost == pytest.approx(5 * price)


LONG = "word " * 4000
UNMEASURED = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}, False),
    ("/generate", {"text": LONG}, True),
]


@pytest.mark.parametrize(("path", "body", "has_prefixes"), UNMEASURED)
@scenario
async def test_a_prompt_that_is_not_measured_is_held(
    tmp_path: Path, path: str, body: dict[str, Any], has_prefixes: bool
) -> None:
    prefix = Prefix(enabled=has_prefixes)
    rules = keys(tmp_path, tokens_per_day=1e9, tokens_per_minute=1e9)
    async with running(hang, keys=rules, prefix=prefix) as router:
        spending = await held(router, path, {"model": "m", **body})
        assert spending.held_tokens >= len(LONG) // 4 + ASSUMED
        (account,) = router.app.parts.dispatcher.tenants._accounts.values()
        assert account._all.tokens is not None
        assert 1e9 - account._all.tokens._level >= len(LONG) // 4


@pytest.mark.parametrize(("path", "body", "has_prefixes"), UNMEASURED)
@scenario
async def test_a_prompt_that_is_not_measured_is_charged_if_the_client_leaves(
    tmp_path: Path, path: str, body: dict[str, Any], has_prefixes: bool
) -> None:
    prefix = Prefix(enabled=has_prefixes)
    stream = stream_then_hang(role(), token("a"), token("b"))
    async with running(stream, keys=limited(tmp_path), prefix=prefix) as router:
        client = await router.send(post_json(path, {"model": "m", "stream": True, **body}, ACME))
        await client.recv_until(b'"b"')
        client.rst()
        budgets = budgets_of(router)
        await eventually(lambda: not budgets.holds, "the request has ended")
        (used,) = (await page(router, "/usage"))["tenants"]
        assert used["prompt_tokens"] >= len(LONG) // 4
        assert used["estimated"] == 1


@pytest.mark.parametrize("path", ["/tokenize", "/v1/messages/count_tokens"])
@scenario
async def test_a_request_that_uses_no_gpu_holds_no_prompt(tmp_path: Path, path: str) -> None:
    """Counting the tokens of long conversations costs little: a token, and one for 1000 bytes."""
    rules = keys(tmp_path, tokens_per_day=1e9, tokens_per_minute=1e9)
    async with running(hang, keys=rules) as router:
        client = await router.client()
        body = {"model": "m", "prompt": LONG, "messages": [{"role": "user", "content": LONG}]}
        await client.send(post_json(path, body, ACME))
        await router.replica.wait_for_requests(1)
        for account in router.app.parts.dispatcher.tenants._accounts.values():
            assert account._all.tokens is not None
            assert 1e9 - account._all.tokens._level == 1 + ceil(len(json.dumps(body)) / 1000)
        client.rst()


@scenario
async def test_media_count_as_media_without_prefixes(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    body = {"messages": [{"role": "user", "content": [image]}]}
    rules = keys(tmp_path, tokens_per_day=1e9)
    async with running(hang, keys=rules, prefix=Prefix(enabled=False)) as router:
        spending = await held(router, "/v1/chat/completions", {"model": "m", **body})
        assert spending.held_tokens < 10_000


@scenario
async def test_a_body_that_is_mostly_media_blocks_its_key_for_a_bounded_number_of_tokens(
    tmp_path: Path,
) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * SCAN_ABOVE}}
    body = {"messages": [{"role": "user", "content": [image]}]}
    async with running(hang, keys=limited(tmp_path)) as router:
        spending = await held(router, "/v1/chat/completions", {"model": "m", **body})
        assert 16_384 < spending.held_tokens - ASSUMED < 16_500
