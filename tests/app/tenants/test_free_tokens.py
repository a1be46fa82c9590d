"""No way to hide tokens works: they are counted as the engine counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys
from tests.app.pages import page
from tests.harness.emulated import Emulated, emulated
from tests.harness.free_tokens import (
    NOT_ASKED,
    TOLERANCE,
    WAYS,
    Totals,
    Way,
    judged,
    problems,
    spend,
)
from tests.harness.replica import eventually
from tests.harness.running import Router, long_scenario, running

ACME = "Authorization: Bearer acme-key"
INTERVAL = 8
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
def test_tokens_are_counted_whatever_a_tenant_does(tmp_path: Path, persona: str) -> None:
    @long_scenario
    async def story() -> None:
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

    story()


@pytest.mark.parametrize("leaves_at", [0.0, 0.5, 1.0])
def test_a_budget_is_exceeded_by_one_request_at_most(tmp_path: Path, leaves_at: float) -> None:
    """The engine's own totals exceed the budget by the rest of the last requests at most."""
    budget = 13_000
    way = Way("spends", NOT_ASKED, leaves_at=leaves_at)

    @long_scenario
    async def story() -> None:
        async with (
            emulated("vllm", speed=SPEED, stream_interval=INTERVAL) as engine,
            running(engine.url, keys=keys(tmp_path, tokens_per_day=budget)) as router,
        ):
            one = await spend(router.port, way, ACME, "m", INTERVAL, 4)
            spent = await engine_totals(engine)
            counted = await counted_totals(router)
            assert budget - one <= spent.sum <= (1 + TOLERANCE) * budget + one
            assert abs(counted.sum - spent.sum) <= TOLERANCE * spent.sum

    story()
