"""Each family of APIs gets errors in its own shape, both before a stream has begun and inside
it.
"""

import asyncio
import json
from typing import Any

import pytest

from router.config.model import Continuation
from router.core.errors import Reason
from tests.harness import kit
from tests.harness.messages import event

SAID: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
MESSAGES, RESPONSES, OLLAMA = "/v1/messages", "/v1/responses", "/api/chat"


def asked(path: str, **more: Any) -> bytes:
    return kit.post_json(path, SAID | {"max_tokens": 5, "input": "hi"} | more)


def named(name: str, value: dict[str, Any]) -> bytes:
    """An event as Anthropic's and OpenAI's newer APIs write it."""
    return b"event: " + name.encode() + b"\n" + event({"type": name} | value)


@kit.routed(kit.chat_either, virtual=True)
async def test_before_anything_was_sent(router: kit.Router) -> None:
    unread = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    unread += b"Content-Length: 1\r\n\r\n{"
    found = await router.ask(unread % b"/v1/messages/count_tokens?beta=true")
    assert found.status == 400
    told = json.loads(found.body)
    assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
    assert told["error"]["code"] == "bad_json"
    assert told["request_id"] == found.header("x-request-id")
    found = await router.ask(unread % b"/api/generate")
    assert set(json.loads(found.body)) == {"error"}
    assert "JSON" in json.loads(found.body)["error"]
    kit.assert_error(await router.ask(unread % b"/v1/responses"), Reason.BAD_JSON)


@kit.routed(kit.chat_either, limits={"body": 100}, virtual=True)
async def test_what_the_wire_refuses(router: kit.Router) -> None:
    found = await router.ask(asked(MESSAGES, system="x" * 200))
    assert (found.status, found.complete) == (413, True)
    assert json.loads(found.body)["error"]["type"] == "request_too_large"
    found = await router.ask(asked(OLLAMA, system="x" * 200))
    assert isinstance(json.loads(found.body)["error"], str)


SAYS = [
    {"error": {"message": "no", "type": "BadRequestError", "param": "n", "code": 400}},
    {"object": "error", "message": "no", "type": "BadRequestError", "param": "n", "code": 400},
    {"detail": "no"},
]


async def too_late(path: str, says: object, status: int) -> tuple[list[str], bytes]:
    """The lines of the last event of a stream that began with comments, and the whole of it."""
    late = kit.answer_after(0.15, kit.json_response(says, status))
    async with kit.running(late, timeouts={"commit_after_s": 0.05}) as router:
        found = await router.ask(asked(path, stream=True))
        assert found.status == 200
        assert bytes(found.body).startswith(b": ")
        assert found.complete  # Nothing is missing, so no client may report a truncation instead.
        last = bytes(found.body).decode().rstrip("\n").split("\n\n")[-1]
        return last.split("\n"), bytes(found.body)


@pytest.mark.parametrize("says", SAYS)
@kit.virtual_scenario
async def test_an_engines_refusal_behind_our_200(says: dict[str, Any]) -> None:
    (line,), _ = await too_late("/v1/chat/completions", says, 400)
    error = json.loads(line.removeprefix("data: "))["error"]
    assert (error["message"], error["status"]) == ("no", 400)
    assert error["type"] == ("invalid_request_error" if "detail" in says else "BadRequestError")
    assert error["code"] == (None if "detail" in says else 400)

    (name, line), _ = await too_late(MESSAGES, says, 400)
    told = json.loads(line.removeprefix("data: "))
    assert (name, told["type"]) == ("event: error", "error")
    assert told["error"]["type"] == "invalid_request_error"
    assert (told["error"]["message"], told["error"]["status"]) == ("no", 400)

    (name, line), _ = await too_late(RESPONSES, says, 400)
    told = json.loads(line.removeprefix("data: "))
    assert (name, told["type"], told["message"]) == ("event: error", "error", "no")
    assert (told["sequence_number"], told["status"]) == (0, 400)


@kit.virtual_scenario
async def test_a_busy_engine_behind_our_200() -> None:
    (_, line), _ = await too_late(MESSAGES, SAYS[0] | {"x": 1}, 429)
    error = json.loads(line.removeprefix("data: "))["error"]
    assert (error["type"], error["status"]) == ("rate_limit_error", 429)


@kit.virtual_scenario
async def test_the_connection_serves_the_next_request_behind_our_200() -> None:
    late = kit.answer_after(0.15, kit.json_response(SAYS[0], 400))
    async with kit.running(late, timeouts={"commit_after_s": 0.05}) as router:
        client = await router.client()
        for _ in range(2):
            await client.send(kit.chat(stream=True))
            found = await client.recv_response()
            assert (found.status, found.complete) == (200, True)
            (event,) = found.events()
            assert json.loads(event)["error"]["message"] == "no"
        await client.send(kit.chat(stream=True, version="1.0"))
        assert b'"message":"no"' in (await client.recv_response()).body
        assert await client.expect_close()


@kit.virtual_scenario
async def test_an_answer_that_is_no_stream_behind_our_200() -> None:
    """The answer cannot be relayed, because the client has a 200 already."""
    late = kit.answer_after(0.15, kit.json_response({"choices": []}))
    async with kit.running(late, timeouts={"commit_after_s": 0.05}) as router:
        found = await router.ask(kit.chat(stream=True))
        assert b"bad_response" in found.body
        assert b'"status":502' in found.body
        assert await router.reason() == "bad_response"


@kit.virtual_scenario
async def test_a_stream_of_messages_that_breaks() -> None:
    go = asyncio.Event()
    events = (
        named("message_start", {"message": {"id": "msg_1", "usage": {"input_tokens": 3}}}),
        named("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "a"}}),
    )
    async with kit.running(kit.stream_then_rst(go, *events)) as router:
        client = await router.send(asked(MESSAGES, stream=True))
        await client.recv_until(b"text_delta")
        go.set()
        found = await client.recv_response()
        assert not found.complete
        name, line = bytes(found.body).decode().split("\n\n")[-2].split("\n")
        assert name == "event: error"
        told = json.loads(line.removeprefix("data: "))
        assert told["error"]["type"] == "api_error"
        assert told["error"]["code"] == "replica_reset"


@kit.virtual_scenario
async def test_a_stream_of_a_response_that_breaks() -> None:
    go = asyncio.Event()
    events = (
        named("response.created", {"sequence_number": 0, "response": {"id": "resp_1"}}),
        named("response.output_text.delta", {"sequence_number": 1, "delta": "a"}),
    )
    async with kit.running(kit.stream_then_rst(go, *events)) as router:
        client = await router.send(asked(RESPONSES, stream=True))
        await client.recv_until(b"text.delta")
        go.set()
        found = await client.recv_response()
        told = json.loads(bytes(found.body).split(b"data: ")[-1])
        assert (told["type"], told["code"]) == ("error", "replica_reset")
        assert told["sequence_number"] == 2


@kit.virtual_scenario
async def test_broken_chat_streams_get_the_usual_error() -> None:
    go = asyncio.Event()
    async with kit.running(
        kit.stream_then_rst(go, kit.role(), kit.token("a")),
        continuation=Continuation(enabled=False),
    ) as router:
        client = await router.send(kit.chat(stream=True))
        await client.recv_until(b'"a"')
        go.set()
        error = json.loads((await client.recv_response()).events()[-1])["error"]
        assert (error["code"], error["status"]) == ("replica_reset", 502)
