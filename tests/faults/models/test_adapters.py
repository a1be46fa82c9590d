"""LoRA adapters over sockets: engines of which each has two adapters, and memory for one."""

import asyncio
from typing import Any

import pytest

from router.core.errors import Reason
from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, running, scenario

ADAPTERS = ("sql", "fr")


async def ask(router: Router, model: str, **fields: Any) -> int:
    answer = await router.ask(chat(**{"model": model, "max_tokens": 4, **fields}))
    return answer.status


@pytest.mark.parametrize("persona", ["vllm", "sglang"])
@scenario
async def test_an_adapter_is_loaded_at_few_replicas(persona: str) -> None:
    name = "{}" if persona == "vllm" else "m:{}"
    async with (
        emulated(persona, adapters=ADAPTERS) as one,
        emulated(persona, adapters=ADAPTERS) as other,
        running(one.url, other.url) as router,
    ):
        fleet = router.app.parts.fleet
        engines = (one.engine, other.engine)
        await eventually(lambda: fleet.adapter_names.is_used, "the adapters")

        def slots() -> list[int]:
            return [replica.loaded_adapters.slots for replica in fleet.replicas.values()]

        while slots() != [1, 1]:  # vLLM reports it after the first request of an adapter.
            for engine in engines:
                engine.adapters.use("sql")
            await asyncio.sleep(0.01)
        before = sum(engine.adapters.loads for engine in engines)
        for _ in range(10):
            for adapter in ADAPTERS:
                assert await ask(router, name.format(adapter)) == 200
        assert sum(engine.adapters.loads for engine in engines) - before <= 2
        assert [len(each.told) for each in (one, other)] == [10, 10]


@scenario
async def test_only_replicas_that_list_an_adapter_serve_it() -> None:
    async with (
        emulated("vllm", adapters=("sql",)) as one,
        emulated("vllm") as other,
        running(one.url, other.url) as router,
    ):
        fleet = router.app.parts.fleet
        await eventually(lambda: len(fleet.serving.of("sql", None)) == 1, "the adapter")
        asked = [ask(router, "sql") for _ in range(8)]
        assert await asyncio.gather(*asked) == [200] * 8
        assert (len(one.told), len(other.told)) == (8, 0)
        answer = await router.ask(chat(model="de"))
        assert_error(answer, Reason.MODEL_NOT_FOUND)
