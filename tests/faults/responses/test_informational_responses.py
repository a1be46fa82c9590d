"""1xx answers before the final one: 103 is passed on once, 100 and 102 are dropped, all limited."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import answer, answer_then_fin
from tests.harness.messages import chat, completion, request
from tests.harness.running import assert_error, running, scenario

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"


@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_a_few_are_swallowed(asked: bytes) -> None:
    async with running(answer(CONTINUE * 3 + PROCESSING + completion())) as router:
        client = await router.client()
        for _ in range(2):
            await client.send(asked)
            got = await client.recv_response()
            assert (got.status, got.informational) == (200, [])
            assert got.complete


@scenario
async def test_a_thousand_are_capped() -> None:
    async with running(answer_then_fin(CONTINUE * 1000 + completion())) as router:
        got = await router.ask(request("/plain"))
        assert got.informational == []
        assert_error(got, Reason.BAD_RESPONSE)


@scenario
async def test_endless_ones_are_capped() -> None:
    """The first-token timer or the limit ends an endless series."""
    async with running(
        answer_then_fin(CONTINUE * 200_000), timeouts={"first_token_s": 0.5}
    ) as router:
        got = await router.ask(chat())
        assert got.status in (502, 504)
        assert got.informational == []


@scenario
async def test_early_hints_are_passed_on_once() -> None:
    async with running(answer(HINTS + completion())) as router:
        got = await router.ask(request("/plain"))
        assert (got.status, got.informational) == (200, [103])
        assert got.complete


@scenario
async def test_early_hints_are_hidden_from_http_1_0() -> None:
    async with running(answer(HINTS + completion())) as router:
        client = await router.send(request("/plain", version="1.0"))
        got = await client.recv_response()
        assert (got.status, got.informational) == (200, [])
        assert b"103" not in client.received.split(b"\r\n")[0]
