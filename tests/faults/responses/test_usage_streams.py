"""The router requests a stream's usage, and clients that did not request it do not get it.

Each persona answers `stream_options` according to its engine's source. The client must get, byte
for byte, what the same persona would have sent to it directly.
"""

import asyncio
import json
from typing import Any

import pytest

from router.config.model import Usage as UsageSettings
from router.dispatch.usage.token_counts import Usage
from router.intake.body import DECODE_UP_TO, SCAN_ABOVE
from tests.harness import kit

ABSENT = object()
VLLM = {"engine": "vllm", "priority": "none"}  # the router adds nothing else to a body
PROMPT, OUTPUT, CACHED = 28, 5, 16
EXACT = Usage(PROMPT, OUTPUT, CACHED, True)
COUNTED = Usage(None, OUTPUT, None, False)
# Each engine's include_usage and continuous_usage_stats, if `stream_options` omits them.
DEFAULTS = {"vllm": (True, False), "sglang": (False, False), "trtllm": (True, True)}
KNOWN = {"model", "messages", "prompt", "stream", "stream_options", "n", "tools"}


def usage(output: int) -> dict[str, Any]:
    return {
        "prompt_tokens": PROMPT,
        "total_tokens": PROMPT + output,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": CACHED},
    }


def told(data: bytes, value: Any) -> bytes:
    """A content event with a usage."""
    return kit.event({**json.loads(data[6:]), "usage": value})


def with_fingerprint(data: bytes) -> bytes:
    return kit.event({**json.loads(data[6:]), "system_fingerprint": "vllm-0.32.0-7166a170"})


def compact(data: bytes) -> bytes:
    """An event in Pydantic's format, without spaces."""
    value = json.loads(data[6:])
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def stream_of(engine: str, body: dict[str, Any]) -> list[bytes]:
    """The events with which an engine answers a body."""
    if engine == "trtllm":
        assert not set(body) - KNOWN, "TensorRT-LLM rejects what it does not know"
    at_end = always = False
    options = body.get("stream_options")
    if engine in ("llamacpp", "tgi"):
        at_end = bool((options or {}).get("include_usage"))
    elif options is not None and engine in DEFAULTS:
        at_end = bool(options.get("include_usage", DEFAULTS[engine][0]))
        always = bool(options.get("continuous_usage_stats", DEFAULTS[engine][1]))
        always = always and (at_end or engine == "sglang")
    events = [kit.token(f"t{n}", "stop" if n == OUTPUT - 1 else None) for n in range(OUTPUT)]
    if always:
        events = [told(data, usage(n + 1)) for n, data in enumerate(events)]
    elif engine == "sglang":  # SGLang writes every field
        events = [told(data, None) for data in events]
    elif engine == "tgi" and at_end:
        events[-1] = told(events[-1], usage(OUTPUT))
    end = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": []}
    if at_end and engine != "tgi":
        events.append(kit.event({**end, "usage": usage(OUTPUT)}))
    if engine == "vllm":  # the last event before [DONE] has the fingerprint
        events[-1] = with_fingerprint(events[-1])
        return [compact(data) for data in (kit.role(), *events)] + [kit.DONE]
    if engine == "llamacpp":
        timings = {"cache_n": CACHED, "prompt_n": PROMPT - CACHED, "predicted_n": OUTPUT}
        events[-1] = kit.event({**json.loads(events[-1][6:]), "timings": timings})
    return [kit.role(), *events, kit.DONE]


def persona(engine: str, size: int) -> kit.Behaviour:
    """An engine whose bytes arrive in pieces of `size`."""

    async def behave(connection: kit.ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if request.method == "GET":  # detection of the engine by the router
                await connection.send(kit.response(404))
                continue
            stream = b"".join(stream_of(engine, request.json()))
            await connection.send(kit.SSE_HEAD)
            await connection.send_pieces(
                kit.chunk(stream[at : at + size]) for at in range(0, len(stream), size)
            )
            await connection.send(kit.LAST_CHUNK)

    return behave


def asking(options: Any, **more: Any) -> dict[str, Any]:
    return kit.chat_body(
        stream=True, **({} if options is ABSENT else {"stream_options": options}), **more
    )


OPTIONS: list[Any] = [
    ABSENT,
    None,
    {},
    {"include_usage": None},
    {"include_usage": False},
    {"include_usage": True},
    {"include_usage": True, "continuous_usage_stats": True},
    {"include_usage": False, "continuous_usage_stats": True},
    {"continuous_usage_stats": True},
]


@pytest.mark.parametrize("size", [1, 50, 100_000])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "tgi", "llamacpp"])
@kit.scenario
async def test_a_client_gets_what_it_asked_for(engine: str, size: int) -> None:
    async with kit.running(persona(engine, size), replica={"engine": engine}) as router:
        found = router.usages()
        for options in OPTIONS:
            body = asking(options)
            got = await router.ask(kit.post_json("/v1/chat/completions", body))
            assert got.complete, options
            assert got.body == b"".join(stream_of(engine, body)), options
            told_ = found.pop()
            if engine == "tgi" and not (isinstance(options, dict) and options.get("include_usage")):
                assert told_ == COUNTED, options
            else:
                assert told_ == EXACT, options
        assert not found


@pytest.mark.parametrize("engine", ["tgi", "llamacpp", "other", None])
@kit.scenario
async def test_an_engine_that_may_not_support_usage_is_not_asked(engine: str | None) -> None:
    behave = persona(engine or "", 100_000)
    replica = kit.HostileReplica(behave, kit.anonymous() if engine is None else None)
    async with kit.running(replica, replica={"engine": engine}) as router:
        for options in OPTIONS:
            assert (
                await router.ask(kit.post_json("/v1/chat/completions", asking(options)))
            ).complete
        posts = [request for request in router.replica.requests if request.method == "POST"]
        assert [request.json() for request in posts] == [asking(options) for options in OPTIONS]


@kit.routed(persona("vllm", 100_000), replica=VLLM, usage=UsageSettings(inject=False))
async def test_it_can_be_turned_off(router: kit.Router) -> None:
    found = router.usages()
    assert (await router.ask(kit.chat(stream=True))).complete
    assert "stream_options" not in router.replica.requests[0].json()
    assert found == [COUNTED]


@pytest.mark.parametrize("count", [None, False, "false", 0, 2])
@kit.routed(kit.json_ok, replica=VLLM)
async def test_what_is_not_streamed_is_not_touched(router: kit.Router, count: Any) -> None:
    found = router.usages()
    body = {**kit.chat_body(), "stream": count}
    assert (await router.ask(kit.post_json("/v1/chat/completions", body))).complete
    assert router.replica.requests[0].json() == body
    assert found == [Usage(1, 1, None, True)]


@kit.routed(kit.json_ok, replica=VLLM)
async def test_an_engine_that_does_not_stream_after_all(router: kit.Router) -> None:
    """A whole answer to a stream request keeps its length, and its usage is read."""
    found = router.usages()
    got = await router.ask(kit.chat(stream=True))
    assert got.complete
    assert bytes(got.body) == kit.completion().partition(b"\r\n\r\n")[2]
    assert found == [Usage(1, 1, None, True)]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@kit.routed(persona("vllm", 100_000), replica=VLLM)
async def test_the_two_paths_that_know_it(router: kit.Router, path: str) -> None:
    body = {"model": "m", "prompt": "hi", "stream": True}
    assert (await router.ask(kit.post_json(path, body))).complete
    (request,) = router.replica.requests
    assert request.json() == {**body, "stream_options": {"include_usage": True}}
    assert request.header("content-length") == str(len(request.body))


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/embeddings", "/generate"])
@kit.routed(persona("vllm", 100_000), replica=VLLM)
async def test_no_other_path_is_asked(router: kit.Router, path: str) -> None:
    body = {"model": "m", "input": "hi", "stream": True}
    assert (await router.ask(kit.post_json(path, body))).complete
    assert router.replica.requests[0].json() == body


@pytest.mark.parametrize("size", [1, 9, 100_000])
@kit.scenario
async def test_a_body_that_comes_in_pieces(size: int) -> None:
    data = kit.post_json("/v1/chat/completions", b" " * 3 + json.dumps(asking(ABSENT)).encode())
    async with kit.running(persona("vllm", 100_000), replica=VLLM) as router:
        client = await router.client()
        await client.send_pieces(data[at : at + size] for at in range(0, len(data), size))
        got = await client.recv_response()
        assert got.body == b"".join(stream_of("vllm", asking(ABSENT)))
        assert router.replica.requests[0].json() == asking({"include_usage": True})


@kit.scenario
async def test_more_choices_and_tool_calls() -> None:
    call = {"index": 0, "function": {"arguments": '{"usage": {"x_tokens": 1}, "choices": []}'}}
    events = [
        kit.role(),
        kit.event({"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": None}]}),
        kit.event(
            {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
        ),
        kit.event({"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}),
        kit.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
    ]
    last = kit.event({"choices": [], "usage": usage(9)})

    behave = kit.answer(kit.SSE_HEAD, kit.chunk(b"".join(events) + last + kit.DONE), kit.LAST_CHUNK)

    async with kit.running(behave, replica=VLLM) as router:
        found = router.usages()
        got = await router.ask(kit.chat(stream=True, n=2))
        assert got.body == b"".join(events) + kit.DONE
        assert found == [Usage(PROMPT, 9, CACHED, True)]


@pytest.mark.parametrize("fields", [["Content-Length: {size}"], []], ids=["sized", "until close"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@kit.scenario
async def test_a_stream_that_is_not_chunked(fields: list[str], version: str) -> None:
    """The stream's Content-Length is not forwarded, because fewer bytes are sent."""
    stream = b"".join(stream_of("vllm", asking({"include_usage": True})))
    lines = ["Content-Type: text/event-stream", *(f.format(size=len(stream)) for f in fields)]

    async def behave(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.head("HTTP/1.1 200 OK", lines))
        await connection.send_pieces([stream[:300], stream[300:]])
        connection.close()

    async with kit.running(behave, replica=VLLM) as router:
        found = router.usages()
        got = await router.ask(kit.chat(stream=True, version=version))
        assert got.complete
        assert got.body == b"".join(stream_of("vllm", asking(ABSENT)))
        assert found == [EXACT]


@pytest.mark.parametrize("options", [ABSENT, None, {"include_usage": False}], ids=range(3))
@kit.scenario
async def test_a_body_that_is_only_scanned_is_asked(options: Any) -> None:
    body = {**asking(options), "pad": "y" * DECODE_UP_TO}
    async with kit.running(persona("vllm", 100_000), replica=VLLM) as router:
        found = router.usages()
        got = await router.ask(kit.post_json("/v1/chat/completions", body))
        assert got.body == b"".join(stream_of("vllm", asking(ABSENT)))
        assert router.replica.requests[0].json() == {
            **body,
            "stream_options": {"include_usage": True},
        }
        assert found == [EXACT]


@kit.scenario
async def test_a_body_too_large_to_decode_is_not_asked() -> None:
    """The options of such a body are unknown: it may have requested the usage."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "x" * SCAN_ABOVE}],
        "stream_options": {"include_usage": True},
        "pad": "y",
        "stream": True,
    }
    async with kit.running(persona("vllm", 100_000), replica=VLLM) as router:
        got = await router.ask(kit.post_json("/v1/chat/completions", body))
        assert got.body == b"".join(stream_of("vllm", asking({"include_usage": True})))
        assert router.replica.requests[0].json() == body


@kit.scenario
async def test_another_engine_is_asked_in_its_own_format() -> None:
    """Each attempt gets the client's body with the options of its engine."""

    busy = kit.answer(kit.head("HTTP/1.1 503 Busy", ["Content-Length: 2"]) + b"{}")

    async with kit.running(busy, persona("", 100_000), policy="round_robin") as router:
        first, second = router.app.parts.fleet.replicas.values()
        first.engine, second.engine = "vllm", "trtllm"
        assert (await router.ask(kit.chat(stream=True))).complete
        options = [
            asked.json()["stream_options"]
            for replica in router.replicas
            for asked in replica.requests
            if asked.method == "POST"  # not a poll of another engine's endpoint
        ]
        assert options == [
            {"include_usage": True},
            {"include_usage": True, "continuous_usage_stats": False},
        ]


@pytest.mark.parametrize("engine", ["vllm", None])
@pytest.mark.parametrize("cut", [0, 40])
@kit.scenario
async def test_a_client_that_leaves_has_used_what_it_got(engine: str | None, cut: int) -> None:
    """Tokens are counted by events; an incomplete event does not count."""
    sent = asyncio.Event()

    async def behave(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        events = [kit.role(), *(kit.token(f"t{n}") for n in range(3)), kit.token("t3")[:cut]]
        await connection.send(kit.SSE_HEAD, *(kit.chunk(data) for data in events if data))
        sent.set()
        await connection.expect_close()

    async with kit.running(behave, replica={"engine": engine}) as router:
        found = router.usages()
        client = await router.send(kit.chat(stream=True))
        await client.recv_until(b'"t2"')
        await sent.wait()
        client.rst()
        await kit.eventually(lambda: bool(found), "the request is over")
        assert found == [Usage(None, 3, None, False)]
        assert await router.reason() == "client_gone"


@kit.scenario
async def test_a_client_that_leaves_before_the_first_token_has_used_its_prompt() -> None:
    async def behave(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.SSE_HEAD, kit.chunk(kit.role()))
        await connection.expect_close()

    async with kit.running(behave, replica=VLLM) as router:
        found = router.usages()
        client = await router.send(kit.chat(stream=True))
        await router.replica.wait_for_requests(1)
        client.rst()
        await kit.eventually(lambda: bool(found), "the request is over")
        (line,) = await router.log()
        assert line["estimated_tokens"] > 0
        assert found == [Usage(line["estimated_tokens"], 0, None, False)]


@pytest.mark.parametrize("cut", [0, 60])
@kit.scenario
async def test_a_cut_stream_ends_with_our_error_and_no_half_event(cut: int) -> None:
    """The beginning of an incomplete event was held back: the router does not send it."""

    async def behave(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        last = kit.event({"choices": [], "usage": usage(1)})[:cut]
        await connection.send(
            kit.SSE_HEAD, *(kit.chunk(d) for d in (kit.role(), kit.token("a"), last) if d)
        )
        await kit.eventually(lambda: b'"a"' in client.received, "the token arrives")
        connection.rst()

    async with kit.running(behave, replica=VLLM) as router:
        found = router.usages()
        client = await router.send(kit.chat(stream=True))
        while b'"a"' not in client.received:
            await client.fill()
        got = await client.recv_response()
        assert not got.complete
        ours = bytes(got.body).removeprefix(kit.role() + kit.token("a"))
        assert json.loads(ours.removeprefix(b"data: "))["error"]["code"] == "replica_reset"
        assert found == [Usage(None, 1, None, False)]


@kit.scenario
async def test_comments_before_the_first_token_stay() -> None:
    """200 was sent early: the stream that follows is relayed by the same rule."""
    go = asyncio.Event()

    async def behave(connection: kit.ReplicaConnection) -> None:
        request = await connection.recv_request()
        assert request is not None
        await go.wait()
        stream = b"".join(stream_of("vllm", request.json()))
        await connection.send(kit.SSE_HEAD, kit.chunk(stream), kit.LAST_CHUNK)

    async with kit.running(behave, replica=VLLM, timeouts={"commit_after_s": 0.05}) as router:
        found = router.usages()
        client = await router.send(kit.chat(stream=True))
        await kit.eventually(lambda: bool(router.app.parts.dispatcher.exchanges), "it is under way")
        while b": waiting" not in client.received:
            await client.fill()
        go.set()
        got = await client.recv_response()
        assert got.complete
        body = bytes(got.body)
        assert body.endswith(b"".join(stream_of("vllm", asking(ABSENT))))
        assert body.startswith(b": ")
        assert found == [EXACT]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("together", [False, True])
@kit.scenario
async def test_a_client_that_leaves_after_done_has_a_complete_answer(
    together: bool, newline: bytes
) -> None:
    """OpenAI's clients close at `[DONE]`, which may come before the end of the HTTP response."""

    async def behave(connection: kit.ReplicaConnection) -> None:
        request = await connection.recv_request()
        events = [data.replace(b"\n", newline) for data in stream_of("vllm", request.json())]
        parts = [b"".join(events)] if together else events
        await connection.send(kit.SSE_HEAD, *(kit.chunk(data) for data in parts))
        await connection.expect_close()

    async with kit.running(behave, replica=VLLM) as router:
        found = router.usages()
        client = await router.send(kit.chat(stream=True))
        await client.recv_until(b"[DONE]")
        await client.recv_until(newline * 2)
        client.rst()
        await kit.eventually(lambda: bool(found), "the request is over")
        assert found == [EXACT]
        assert await router.reason() == "ok"
        (replica,) = router.app.parts.fleet.replicas.values()
        assert (replica.inflight, replica.health.failures) == (0, 0)


@pytest.mark.parametrize("waits_s", [0.0, 20.0])
@kit.virtual_scenario
async def test_a_client_that_stays_idle_after_done_teaches_no_speed(waits_s: float) -> None:
    async def behave(connection: kit.ReplicaConnection) -> None:
        request = await connection.recv_request()
        await connection.send(kit.SSE_HEAD)
        for data in stream_of("vllm", request.json()):
            await asyncio.sleep(0.01)
            await connection.send(kit.chunk(data))
        await connection.expect_close()

    async with kit.running(behave, replica=VLLM) as router:
        client = await router.send(kit.chat(stream=True))
        while b"[DONE]" not in client.received:
            await client.fill()
        await asyncio.sleep(waits_s)
        client.rst()
        assert await router.reason() == "ok"
        (replica,) = router.app.parts.fleet.replicas.values()
        assert (replica.tpot_s is None) == (waits_s > 0.0)
