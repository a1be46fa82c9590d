"""No way to hide tokens works: they are counted as the engine counts them."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys
from tests.addons.needed import needs
from tests.app.pages import page
from tests.app.tenants.byte_engine import ByteEngine, byte_engine
from tests.harness.emulated import Emulated, emulated
from tests.harness.free_tokens import (
    LEAST,
    NOT_ASKED,
    TOLERANCE,
    WAYS,
    Totals,
    Way,
    ask,
    body_of,
    judged,
    problems,
    spend,
)
from tests.harness.replica import eventually
from tests.harness.running import Router, long_scenario, running

ACME = "Authorization: Bearer acme-key"
INTERVAL = 8
VLLM = {"engine": "vllm"}
# About 2 ms for a token, so that few tokens come between a client's leaving and its abort.
SPEED = 8.0


def keys(folder: Path, **limits: Any) -> Keys:
    path = folder / "keys.jsonl"
    path.write_text(line_of(KeyLine(name="acme", hash=hash_of(b"acme-key"), **limits)) + "\n")
    return Keys(file=str(path))


async def engine_totals(engine: Emulated) -> Totals:
    core = engine.engine.core
    await eventually(lambda: not core.running and not core.waiting, "the engine is idle")
    return Totals(core.prompt_tokens, core.generation_tokens)


async def counted_totals(router: Router) -> Totals:
    dispatcher = router.app.parts.dispatcher
    await eventually(lambda: not dispatcher.exchanges, "all requests have ended")
    (found,) = (await page(router, "/usage"))["tenants"] or [{}]
    return Totals(found.get("prompt_tokens", 0), found.get("output_tokens", 0))


@pytest.mark.parametrize("persona", ["vllm", "sglang"])
@long_scenario
async def test_tokens_are_counted_whatever_a_tenant_does(tmp_path: Path, persona: str) -> None:
    settings: dict[str, Any] = {"speed": SPEED, "stream_interval": INTERVAL}
    async with (
        emulated(persona, **settings) as engine,
        running(engine.url, keys=keys(tmp_path)) as router,
    ):
        results = [
            await judged(
                way,
                router.port,
                ACME,
                "m",
                INTERVAL,
                lambda: engine_totals(engine),
                lambda: counted_totals(router),
            )
            for way in (Way("warms up"), *WAYS)
        ]
        print(*results, sep="\n")
        assert not problems(results)


async def byte_totals(engine: ByteEngine) -> Totals:
    await eventually(lambda: not engine.running, "the engine is idle")
    return Totals(engine.prompt_tokens, engine.generation_tokens)


@needs("usage")
@pytest.mark.parametrize("token_bytes", [4, 1])
@pytest.mark.parametrize("leaves_at", [0.0, 0.5, 1.0])
@long_scenario
async def test_a_budget_is_exceeded_by_one_request_at_most(
    tmp_path: Path, leaves_at: float, token_bytes: int
) -> None:
    """The engine's own totals exceed the budget by the rest of the last requests at most.

    The key and the router are new, so nothing is known about the tokens of its requests.
    """
    budget = 13_000 if token_bytes > 1 else 26_000
    way = Way("spends", NOT_ASKED, leaves_at=leaves_at)

    async def judge(url: str, totals: Callable[[], Awaitable[Totals]]) -> None:
        async with running(url, replica=VLLM, keys=keys(tmp_path, tokens_per_day=budget)) as router:
            one = await spend(router.port, way, ACME, "m", INTERVAL, token_bytes)
            spent = await totals()
            counted = await counted_totals(router)
            print(f"spent {spent} of {budget}, counted {counted}, one request {one}")
            assert budget - one <= spent.sum <= budget + one
            assert abs(counted.sum - spent.sum) <= TOLERANCE * spent.sum

    if token_bytes > 1:
        async with emulated("vllm", speed=SPEED, stream_interval=INTERVAL) as engine:
            await judge(engine.url, lambda: engine_totals(engine))
    else:
        async with byte_engine(INTERVAL) as bytewise:
            await judge(bytewise.url, lambda: byte_totals(bytewise))


@needs("usage")
@long_scenario
async def test_the_first_requests_of_a_key_do_not_exceed_its_budget(tmp_path: Path) -> None:
    """No answer has taught the router the bytes of a token when twelve requests come at once."""
    budget = 6_000
    async with (
        byte_engine(INTERVAL) as engine,
        running(engine.url, replica=VLLM, keys=keys(tmp_path, tokens_per_day=budget)) as router,
    ):
        one = await spend(router.port, Way("spends"), ACME, "m", INTERVAL, 1)
        spent = await byte_totals(engine)
        assert budget - one <= spent.sum <= budget + one


@pytest.mark.parametrize("others", ["another tenant ends its streams", "nobody ends a stream"])
@long_scenario
async def test_an_account_that_leaves_all_streams_has_a_ratio(tmp_path: Path, others: str) -> None:
    """Another account teaches the model's ratio; without one, the events of the streams do."""
    interval, way = (INTERVAL if "another" in others else 1), Way("leaves", leaves_at=0.9)
    async with (
        byte_engine(interval) as engine,
        running(engine.url, replica=VLLM, keys=keys(tmp_path)) as router,
    ):
        if "another" in others:
            for _ in range(2):
                await ask(router.port, Way("ends"), "x-other: 1", body_of(way, "m", 0), interval)

        async def totals() -> Totals:
            return await byte_totals(engine)

        async def counted() -> Totals:
            dispatcher = router.app.parts.dispatcher
            await eventually(lambda: not dispatcher.exchanges, "all requests have ended")
            found = (await page(router, "/usage"))["tenants"]
            (own,) = [one for one in found if one["tenant"] == "acme"] or [{}]
            return Totals(own.get("prompt_tokens", 0), own.get("output_tokens", 0))

        results = [
            await judged(way, router.port, ACME, "m", interval, totals, counted) for _ in range(6)
        ]
        print(*results, sep="\n")
        assert results[-1].share >= LEAST
