"""Engines with different context lengths: a request goes where it fits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.harness.emulated import Emulated, emulated
from tests.harness.messages import chat
from tests.harness.reading import Response
from tests.harness.replica import eventually
from tests.harness.running import Router, running, scenario

SHORT, LONG = 2048, 16384
PERSONAS = pytest.mark.parametrize("persona", ["vllm", "sglang", "tgi", "llamacpp"])


async def ask(router: Router, words: int = 1, **fields: Any) -> Response:
    """The answer to a chat; a word has 5 bytes."""
    body = {"messages": [{"role": "user", "content": "word " * words}], "max_tokens": 8, **fields}
    return await router.ask(chat(**body))


def counts(*engines: Emulated) -> list[int]:
    return [len(engine.told) for engine in engines]


@asynccontextmanager
async def fleet(persona: str, **config: Any) -> AsyncIterator[tuple[Router, Emulated, Emulated]]:
    async with (
        emulated(persona, max_model_len=SHORT) as short,
        emulated(persona, max_model_len=LONG) as long,
        running(short.url, long.url, **config) as router,
    ):
        levels = router.app.parts.fleet.context_levels
        await eventually(lambda: levels.shortest == SHORT and levels.is_used, "the lengths")
        yield router, short, long


@PERSONAS
@scenario
async def test_only_the_longer_engine_gets_long_requests(persona: str) -> None:
    async with fleet(persona) as (router, short, long):
        for _ in range(4):
            assert (await ask(router, max_tokens=4000)).status == 200
            # 40,000 bytes are at least 2,500 tokens.
            assert (await ask(router, words=8000)).status == 200
        assert counts(short, long) == [0, 8]
        for _ in range(12):
            assert (await ask(router)).status == 200
        assert counts(short, long)[0] > 0


@scenario
async def test_if_it_fits_nowhere_the_client_gets_the_engines_error() -> None:
    async with fleet("vllm") as (router, short, long):
        answer = await ask(router, max_tokens=50_000)
        assert answer.status == 400
        assert b"maximum context length is" in answer.body
        assert sum(counts(short, long)) == 1
