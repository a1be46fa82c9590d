"""A reset after the first token: visibly truncated, never retried, never [DONE]."""

from __future__ import annotations

import asyncio

from router.core.errors import Reason
from tests.harness.behaviours import in_turn, json_ok, sse_tokens, stream_then_rst
from tests.harness.messages import chat, event, post_json, role, token
from tests.harness.running import assert_cut_stream, running, scenario


@scenario
async def test_after_content() -> None:
    go = asyncio.Event()
    behave = stream_then_rst(go, role(), token("a"))
    async with running(behave, behave) as router:
        client = await router.send(chat(stream=True))
        await client.recv_until(b'"a"')
        go.set()
        await client.expect_close()
        assert_cut_stream(await client.recv_response(), Reason.REPLICA_RESET)
        (line,) = await router.log()
        assert (line["reason"], line["attempts"]) == ("replica_reset", 1)
        assert sum(len(replica.requests) for replica in router.replicas) == 1


@scenario
async def test_before_content_another_replica_answers_alone() -> None:
    """Nothing of the first attempt was relayed, not even its role event."""
    go = asyncio.Event()
    go.set()
    failing = stream_then_rst(go, b": ping\n\n", role())
    behave = in_turn(failing, then=sse_tokens(2))
    async with running(behave, behave) as router:
        answer = await router.ask(chat(stream=True))
        assert answer.complete
        assert len(answer.events()) == 4
        assert answer.events()[-1] == "[DONE]"
        assert b"ping" not in answer.body
        (line,) = await router.log()
        assert (line["reason"], line["attempts"]) == ("ok", 2)


@scenario
async def test_before_content_of_a_stored_response_nothing_is_sent_again() -> None:
    go = asyncio.Event()
    go.set()
    opening = event({"type": "response.created", "response": {"id": "resp_1"}})
    behave = stream_then_rst(go, opening)
    async with running(behave, json_ok, policy="round_robin") as router:
        body = {"model": "m", "input": "hello", "stream": True, "store": True}
        seen = [await router.ask(post_json("/v1/responses", body)) for _ in range(2)]
        assert sorted(answer.status for answer in seen) == [200, 502]
        assert {line["attempts"] for line in await router.log(2)} == {1}
