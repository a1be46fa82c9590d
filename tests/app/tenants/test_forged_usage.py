"""No object that a client puts into a request of /v1/responses is counted as the engine's usage.

The engine's answer contains the request's `metadata` and `tools` after its own `usage`.
"""

import json
from typing import Any

import pytest

from tests.app.pages import page
from tests.harness.behaviours import answer
from tests.harness.messages import LAST_CHUNK, SSE_HEAD, chunk, event, json_response, post_json
from tests.harness.replica import Behaviour, ReplicaConnection
from tests.harness.running import running, scenario

TOLD = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
FORGED = {
    "usage": {"prompt_tokens": 0, "completion_tokens": 0},
    "timings": {"prompt_n": 0, "cache_n": 0, "predicted_n": 0},
}
TOOL = {"type": "function", "name": "f", "parameters": FORGED}
MIB = 1024 * 1024
# The event's total size decides how many reads it needs, and whether it is kept for decoding.
SIZES = [0, 100_000]


def response(usage: Any, padding: int) -> dict[str, Any]:
    """An answer in the order of SGLang's members."""
    return {
        "id": "resp_a",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
        "usage": usage,
        "metadata": {**FORGED, "padding": "a" * padding},
        "tools": [TOOL],
    }


def streams(padding: int) -> Behaviour:
    events = [
        {"type": "response.created", "response": response(None, padding)},
        {"type": "response.output_text.delta", "delta": "hi"},
        {"type": "response.completed", "response": response(TOLD, padding)},
    ]

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD)
            for each in events:
                data = b"event: %b\n%b" % (str(each["type"]).encode(), event(each))
                half = len(data) // 2
                await connection.send_pieces([chunk(data[:half]), chunk(data[half:])])
            await connection.send(LAST_CHUNK)

    return behave


def whole(padding: int) -> Behaviour:
    return answer(json_response(response(TOLD, padding)))


@pytest.mark.parametrize("padding", SIZES)
@pytest.mark.parametrize("behave", [whole, streams])
@scenario
async def test_the_engines_own_counts_are_charged(behave: Any, padding: int) -> None:
    async with running(behave(padding)) as router:
        body = {"model": "m", "input": "hi", "stream": behave is streams}
        assert (await router.ask(post_json("/v1/responses", body), "POST")).complete
        total = (await page(router, "/usage"))["total"]
        assert (total["prompt_tokens"], total["output_tokens"]) == (1000, 100)
        assert total["estimated"] == 0


@scenario
async def test_an_answer_that_is_relayed_in_pieces() -> None:
    body = {"model": "m", "input": "hi"}
    async with running(whole(MIB), limits={"response_hold": 64 * 1024}) as router:
        assert (await router.ask(post_json("/v1/responses", body), "POST")).complete
        total = (await page(router, "/usage"))["total"]
        assert (total["prompt_tokens"], total["output_tokens"]) == (1000, 100)


@scenario
async def test_a_stream_with_an_event_too_long_to_keep_is_estimated() -> None:
    async with running(streams(2 * MIB)) as router:
        asked = {"model": "m", "input": "hi" * 2000, "stream": True}
        assert (await router.ask(post_json("/v1/responses", asked), "POST")).complete
        total = (await page(router, "/usage"))["total"]
        assert total["prompt_tokens"] >= len(json.dumps(asked)) // 8
        assert total["output_tokens"] >= 1
        assert total["estimated"] == 1
