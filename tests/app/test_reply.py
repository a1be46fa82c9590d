"""The bytes sent to a client, where the replica's read boundaries or the kind of body matter."""

import asyncio
import json

import pytest

from router.core.errors import Reason
from router.dispatch.usage.token_counts import UNKNOWN, Usage
from tests.harness.behaviours import answer
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    event,
    head,
    post_json,
    request,
    response,
    role,
    token,
)
from tests.harness.reading import error_of
from tests.harness.replica import Behaviour, ReplicaConnection, eventually
from tests.harness.running import running, scenario


def in_reads(stream: bytes, size: int, *fields: str) -> Behaviour:
    """A stream of events in reads of `size` bytes."""

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD)
            await connection.send_pieces(
                chunk(stream[at : at + size]) for at in range(0, len(stream), size)
            )
            await connection.send(LAST_CHUNK)

    return behave


# If the client requests the usage itself, no event is removed from the stream, and none is held
# until it is complete.
ASKS_ITSELF = {"include_usage": True}
BOOM = {"message": "boom " * 10, "type": "InternalServerError", "param": None, "code": 500}
NAMED = b"event: error\n" + event({"type": "error", "error": {"message": "boom"}})


@pytest.mark.parametrize("size", [5, 11, 64, 100_000])
@pytest.mark.parametrize("report", [event({"error": BOOM}), NAMED], ids=["data", "named"])
@scenario
async def test_an_error_is_noticed_wherever_it_is_cut(report: bytes, size: int) -> None:
    stream = role() + token("a") + report + DONE
    async with running(in_reads(stream, size)) as router:
        found = await router.ask(chat(stream=True))
        assert found.complete
        assert found.body == stream
        assert await router.reason() == "stream_error"
        (replica,) = router.app.parts.fleet.replicas.values()
        assert replica.health.served == 0


@pytest.mark.parametrize(("code", "ejected"), [(500, True), (400, False)])
@pytest.mark.parametrize("size", [5, 100_000])
@scenario
async def test_the_source_of_an_error(code: int, ejected: bool, size: int) -> None:
    """The code of an error event comes after its text, perhaps in another read."""
    stream = token("a") + event({"error": {**BOOM, "code": code}}) + DONE
    good = in_reads(token("a") + DONE, 100_000)
    async with running(
        in_reads(stream, size),
        good,
        health={"eject_after": 1, "eject_base_s": 3600.0},
        policy="round_robin",
    ) as router:
        for _ in range(4):
            await router.ask(chat(stream=True))
        asked = len(router.replicas[0].requests)
        assert asked == (1 if ejected else 2)


@pytest.mark.parametrize("size", [1, 13, 100_000])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("cut", [0, 1, 30])
@scenario
async def test_the_routers_error_is_sent_between_events(
    newline: bytes, cut: int, size: int
) -> None:
    """A stream that breaks inside an event gets a blank line first; one between events gets
    none.
    """
    whole = (role() + token("a")).replace(b"\n", newline)
    stream = whole + token("b")[:cut]

    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD)
        await connection.send_pieces(
            chunk(stream[at : at + size]) for at in range(0, len(stream), size)
        )
        await go.wait()
        connection.rst()

    async with running(behave) as router:
        client = await router.client()
        await client.send(chat(stream=True, stream_options=ASKS_ITSELF))
        exchanges = router.app.parts.dispatcher.exchanges
        await eventually(
            lambda: [e.reply.bytes_out for e in exchanges] == [len(stream)], "it is relayed"
        )
        go.set()
        found = await client.recv_response()
        assert not found.complete
        rest = bytes(found.body).removeprefix(stream)
        assert rest.startswith(b"\n\n") == (cut > 0)
        last = json.loads(rest.strip().removeprefix(b"data: "))
        assert error_of(last)["code"] == Reason.REPLICA_RESET.value


TOLD = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [10, 3_000, 400_000])
@scenario
async def test_the_usage_of_a_whole_answer_is_read(size: int, chunked: bool) -> None:
    """The usage is read even if the answer is too long to be held until it is complete."""
    body = json.dumps({"text": "x" * size, "usage": TOLD, "more": None}).encode()
    data = response(200, body=body)
    if chunked:
        lines = ["Content-Type: application/json", "Transfer-Encoding: chunked"]
        parts = [chunk(body[at : at + 1000]) for at in range(0, len(body), 1000)]
        data = head("HTTP/1.1 200 OK", lines) + b"".join(parts) + LAST_CHUNK
    async with running(answer(data)) as router:
        found = router.usages()
        got = await router.ask(chat())
        assert got.complete
        assert got.body == body
        assert found == [Usage(7, 3, 4, True)]


@pytest.mark.parametrize("status", [400, 404])
@scenario
async def test_a_refusal_has_used_nothing(status: int) -> None:
    async with running(
        answer(response(status, body=json.dumps({"usage": TOLD}).encode()))
    ) as router:
        found = router.usages()
        assert (await router.ask(chat())).status == status
        assert found == [UNKNOWN]


@scenario
async def test_requests_that_are_not_inference_are_not_counted() -> None:
    stream = b"".join(token(f"t{n}") for n in range(5))
    async with running(in_reads(stream, 50)) as router:
        found = router.usages()
        got = await router.ask(request("/events"))
        assert got.body == stream
        assert found == [UNKNOWN]


@scenario
async def test_a_compressed_stream_is_opaque() -> None:
    """A compressed stream cannot be parsed: none of its bytes is held or taken for an event."""
    stream = token("a") + event({"choices": [], "usage": TOLD}) + event({"error": BOOM})
    lines = [
        "Content-Type: text/event-stream",
        "Content-Encoding: br",
        "Transfer-Encoding: chunked",
    ]

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(
                head("HTTP/1.1 200 OK", lines), chunk(stream[:-3]), chunk(stream[-3:]), LAST_CHUNK
            )

    async with running(behave, replica={"engine": "vllm"}) as router:
        found = router.usages()
        got = await router.ask(chat(stream=True, stream_options=ASKS_ITSELF))
        assert got.body == stream
        (usage,) = found  # counted by bytes: the router can read nothing in the stream
        assert (usage.prompt_tokens, usage.exact) == (None, False)
        assert await router.reason() == "ok"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("size", [7, 100_000])
@scenario
async def test_other_routes_report_usage_in_their_last_event(path: str, size: int) -> None:
    told = {"input_tokens": 9, "output_tokens": 2}
    if path == "/v1/responses":
        events = [
            event({"type": "response.created", "response": {"id": "resp_1", "usage": None}}),
            event({"type": "response.output_text.delta", "delta": "a"}),
            event({"type": "response.completed", "response": {"id": "resp_1", "usage": told}}),
        ]
    else:
        start = {"type": "message_start", "message": {"usage": {**told, "output_tokens": 0}}}
        events = [
            b"event: message_start\n" + event(start),
            event({"type": "content_block_delta", "delta": {"text": "a"}}),
            event({"type": "message_delta", "usage": {"output_tokens": 2}}),
            event({"type": "message_stop"}),
        ]
    async with running(in_reads(b"".join(events), size)) as router:
        found = router.usages()
        got = await router.ask(post_json(path, {"model": "m", "input": "x", "stream": True}))
        assert got.body == b"".join(events)
        assert found == [Usage(9, 2, None, True)]


@scenario
async def test_a_sized_stream_in_one_read() -> None:
    """The events of a stream that arrives complete, with a Content-Length, are parsed as well."""
    stream = token("a") + event({"choices": [], "usage": TOLD}) + event({"error": BOOM}) + DONE
    data = response(200, body=stream, content_type="text/event-stream")
    async with running(answer(data)) as router:
        found = router.usages()
        got = await router.ask(chat(stream=True, stream_options=ASKS_ITSELF))
        assert got.body == stream
        assert got.header("content-length") == str(len(stream))
        assert (found[0].prompt_tokens, found[0].output_tokens) == (7, 3)
        assert await router.reason() == "stream_error"
