"""A request with its engine's neutral priority is a normal request, on every engine.

vLLM's and SGLang's neutral `priority` is 0 and TensorRT-LLM's is 0.5. No neutral number may make a
request critical, let it overtake another request, or let a client without a key be critical.
"""

import logging
from pathlib import Path
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Priority
from tests.harness.behaviours import echo
from tests.harness.emulated import emulated
from tests.harness.messages import chat_body, post_json
from tests.harness.replica import eventually
from tests.harness.running import Router, routed, running, scenario

TIERS = ("enterprise", "free")


def chat_of(*headers: str, **body: Any) -> bytes:
    return post_json("/v1/chat/completions", chat_body(max_tokens=1, **body), *headers)


async def classes_of(router: Router, *bodies: dict[str, Any]) -> list[str]:
    for body in bodies:
        assert (await router.ask(chat_of(**body), "POST")).status == 200
    return [line["class"] for line in await router.log(len(bodies))]


@pytest.mark.parametrize(
    ("persona", "neutral", "high", "low"),
    [("vllm", 0, -10, 10), ("sglang", 0, 10, -10), ("trtllm", 0.5, 0.75, 0.25)],
)
@scenario
async def test_a_number_means_what_the_engine_makes_of_it(
    persona: str, neutral: float, high: float, low: float
) -> None:
    async with (
        emulated(persona) as engine,
        running(engine.url, health={"models_interval_s": 0.05, "interval_s": 0.05}) as router,
    ):
        (replica,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: replica.engine == persona, "it is detected")
        found = await classes_of(
            router, {"priority": neutral}, {"priority": high}, {"priority": low}, {}
        )
        assert found == ["normal", "high", "low", "normal"]


def test_a_number_in_a_mixed_pool_is_ignored_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @scenario
    async def story() -> None:
        async with (
            emulated("vllm") as vllm,
            emulated("sglang") as sglang,
            running(vllm.url, sglang.url) as router,
        ):
            replicas = router.app.parts.fleet.replicas.values()
            await eventually(
                lambda: [r.engine for r in replicas] == ["vllm", "sglang"], "they are detected"
            )
            bodies = [{"priority": number} for number in (0, 4, -30, 30, 0.5)]
            found = await classes_of(router, *bodies, {"priority": "low"})
            assert found == ["normal"] * 5 + ["low"]
            judge = router.app.parts.dispatcher.tenants.judge
            assert judge.ignored == {"mixed": 5}

    with caplog.at_level(logging.WARNING, logger="hedgerow"):
        story()
    warnings = [r for r in caplog.records if "priority numbers" in r.getMessage()]
    assert [record.__dict__["fields"]["dialect"] for record in warnings] == ["mixed"]


@scenario
async def test_a_number_before_any_engine_is_known_is_ignored() -> None:
    never: dict[str, Any] = {
        "health": {"interval_s": 3600.0, "models_interval_s": 3600.0},
        "polling": {"interval_s": 0.0},
    }
    async with running(echo, **never) as router:
        (replica,) = router.app.parts.fleet.replicas.values()
        replica.engine = None
        router.app.parts.fleet.rebuild()
        assert await classes_of(router, {"priority": 0}, {"priority": 5}) == ["normal", "normal"]
        replica.engine = "vllm"
        router.app.parts.fleet.rebuild()
        assert (await router.ask(chat_of(priority=10), "POST")).status == 200
        assert [line["class"] for line in await router.log(3)][2] == "low"


@scenario
async def test_a_configured_dialect_is_read_without_an_engine() -> None:
    rules = Priority(dialect="hedgerow", ceiling="critical")
    async with running(echo, priority=rules) as router:
        assert await classes_of(router, {"priority": 0}, {"priority": 4}) == ["critical", "batch"]


@pytest.mark.parametrize("way", ["body", "header"])
@routed(echo)
async def test_a_client_without_a_key_is_not_critical(router: Router, way: str) -> None:
    headers = ["x-priority: critical"] if way == "header" else []
    body = {"priority": "critical"} if way == "body" else {}
    assert (await router.ask(chat_of(*headers, **body), "POST")).status == 200
    assert [line["class"] for line in await router.log(1)] == ["high"]


@scenario
async def test_a_client_gains_nothing_by_leaving_its_key_away(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    lines = [KeyLine(name=tier, hash=hash_of(tier.encode()), tier=tier) for tier in TIERS]
    file.write_text("".join(line_of(line) + "\n" for line in lines))
    async with running(echo, keys=Keys(file=str(file))) as router:
        for tier in (*TIERS, "nobody"):
            data = chat_of(f"authorization: Bearer {tier}", priority="critical")
            assert (await router.ask(data, "POST")).status == 200
        assert [line["class"] for line in await router.log(3)] == ["high", "low", "low"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (None, "no API keys: every client may use class high"),
        ({}, "by API key; without a known key at most high"),
        ({"required": True}, "by API key; without a known key 401"),
    ],
)
def test_the_start_says_which_classes_clients_may_use(
    keys: dict[str, Any] | None, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.jsonl"
    file.write_text(line_of(KeyLine(name="acme", hash=hash_of(b"acme-key"))))
    rules = Keys() if keys is None else Keys(file=str(file), **keys)

    @scenario
    async def story() -> None:
        async with running(echo, keys=rules):
            pass

    with caplog.at_level(logging.INFO, logger="hedgerow"):
        story()
    (ready,) = [r for r in caplog.records if r.getMessage() == "ready"]
    assert ready.__dict__["fields"]["classes"] == told
