"""A 200 with an empty stream is not a success."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import answer, in_turn, sse_tokens
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, role
from tests.harness.running import assert_error, running, scenario

EMPTY = {
    "nothing": SSE_HEAD + LAST_CHUNK,
    "a comment": SSE_HEAD + chunk(b": ping\n\n") + LAST_CHUNK,
}


@pytest.mark.parametrize("name", EMPTY)
@scenario
async def test_it_is_an_error(name: str) -> None:
    async with running(answer(EMPTY[name])) as router:
        assert_error(await router.ask(chat(stream=True)), Reason.EMPTY_STREAM)
        assert await router.reason() == "empty_stream"


@pytest.mark.parametrize("name", EMPTY)
@scenario
async def test_another_replica_can_mend_it(name: str) -> None:
    behave = in_turn(answer(EMPTY[name]), then=sse_tokens(1))
    async with running(behave, behave) as router:
        assert (await router.ask(chat(stream=True))).events()[-1] == "[DONE]"


@scenario
async def test_a_stream_that_only_says_done() -> None:
    """An end without a token may be passed on, but it must be counted."""
    async with running(answer(SSE_HEAD + chunk(role()) + chunk(DONE) + LAST_CHUNK)) as router:
        got = await router.ask(chat(stream=True))
        assert got.status in (200, 502)
        assert await router.reason() == "empty_stream"
