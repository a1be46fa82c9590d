"""A replica dies in mid-stream, and another one continues: the client gets one unbroken stream.

The engines are simulated: each continues after the text in its request, as vLLM does.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from router.addons.continuation.store import Outcome
from router.config.model import Continuation
from router.core.errors import Reason
from tests.addons.continuation.engine import (
    PROMPT_TOKENS,
    TEXT,
    WORDS,
    Told,
    made_of,
    read,
    stream,
)
from tests.harness import kit

ON = Continuation(enabled=True)
VLLM = {"engine": "vllm"}

Break = Callable[[kit.ReplicaConnection, list[bytes]], Awaitable[None]]


def asked_behind(request: kit.Request) -> str:
    """The text that a request asks to continue."""
    body = request.json()
    if "prompt" in body:
        return str(body["prompt"]).removeprefix("hello")
    return str(body["messages"][-1]["content"]) if body.get("continue_final_message") else ""


class Fleet:
    """Replicas that answer in the order in which they are called, as configured."""

    def __init__(self, *plan: Break) -> None:
        self.plan = [*plan]
        self.asked: list[kit.Request] = []

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        is_open = True
        while is_open and (request := await connection.recv_request()):
            if request.method == "GET":  # detection of the engine by the router
                await connection.send(kit.response(404))
                continue
            number = len(self.asked)
            self.asked.append(request)
            body = request.json()
            kind = "completions" if "prompt" in body else "chat"
            usage = bool((body.get("stream_options") or {}).get("include_usage"))
            after = made_of(asked_behind(request))
            act = self.plan[number] if number < len(self.plan) else whole
            await act(connection, stream(kind, f"r{number}", after, usage=usage))
            is_open = connection.sock.fileno() >= 0


def continuing(
    fleet: Fleet, replicas: int = 2, **config: Any
) -> AbstractAsyncContextManager[kit.Router]:
    """A router with continuation in front of replicas of this fleet."""
    return kit.running(*[fleet] * replicas, **{"replica": VLLM, "continuation": ON, **config})


async def whole(connection: kit.ReplicaConnection, events: list[bytes]) -> None:
    await connection.send(kit.SSE_HEAD, *(kit.chunk(one) for one in events), kit.LAST_CHUNK)


def resets(count: int, more: bytes = b"") -> Break:
    """Send `count` events and some bytes of the next, and reset once they have arrived."""

    async def act(connection: kit.ReplicaConnection, events: list[bytes]) -> None:
        await connection.send(kit.SSE_HEAD, *(kit.chunk(one) for one in events[:count]))
        if more:
            await connection.send(kit.chunk(more))
        await kit.rest(0.05)
        connection.rst()

    return act


def closes(count: int) -> Break:
    async def act(connection: kit.ReplicaConnection, events: list[bytes]) -> None:
        await connection.send(kit.SSE_HEAD, *(kit.chunk(one) for one in events[:count]))
        await kit.rest(0.05)
        connection.close()

    return act


def stops(count: int) -> Break:
    async def act(connection: kit.ReplicaConnection, events: list[bytes]) -> None:
        await connection.send(kit.SSE_HEAD, *(kit.chunk(one) for one in events[:count]))
        await connection.recv_request()

    return act


def answers(data: bytes) -> Break:
    async def act(connection: kit.ReplicaConnection, events: list[bytes]) -> None:
        await connection.send(data)

    return act


async def silence(connection: kit.ReplicaConnection, events: list[bytes]) -> None:
    """Send the response head and nothing else, until the router gives up."""
    await connection.send(kit.SSE_HEAD)
    await connection.recv_request()


def outcomes(router: kit.Router) -> dict[str, int]:
    source = router.app.metrics.added.get("continuation")
    return {} if source is None else dict(source.take())


def kinds(line: dict[str, Any]) -> list[str]:
    return [record[1] for record in line["tried"]]


ASK = {
    "chat": ("/v1/chat/completions", kit.chat_body(stream=True)),
    "completions": ("/v1/completions", {"model": "m", "prompt": "hello", "max_tokens": 50}),
}


def asking(kind: str, **more: Any) -> bytes:
    path, body = ASK[kind]
    return kit.post_json(path, {**body, "stream": True, **more})


def assert_unbroken(told: Told, kind: str, first: str = "r0") -> None:
    assert told.text == TEXT
    assert told.roles == (kind == "chat")
    assert told.names == {(first, 1000, f"m-{first}")}
    assert told.finish == ["stop"]
    assert told.done == 1


@pytest.mark.parametrize("asks", [True, False], ids=["client asks for usage", "router asks"])
@pytest.mark.parametrize(
    "broken",
    [resets(4), resets(5, b'data: {"id":"r0","choi'), closes(7), resets(4, b"\r\n")],
    ids=["reset", "inside an event", "end", "nonsense"],
)
@pytest.mark.parametrize("kind", ["chat", "completions"])
@kit.scenario
async def test_one_unbroken_stream(kind: str, broken: Break, asks: bool) -> None:
    fleet = Fleet(broken)
    async with continuing(fleet) as router:
        found = router.usages()
        options = {"stream_options": {"include_usage": True}} if asks else {}
        answer = await router.ask(asking(kind, **options))
        assert answer.complete
        told = read(bytes(answer.body))
        assert_unbroken(told, kind)
        counts = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": len(WORDS)}
        if asks:
            assert told.usage is not None
            assert {name: told.usage[name] for name in counts} == counts
            assert told.usage["total_tokens"] == PROMPT_TOKENS + len(WORDS)
        else:
            assert told.usage is None
        # Without exact counts, the larger of the events and the bytes is charged.
        (charged,) = found
        assert (charged.prompt_tokens, charged.exact) == (PROMPT_TOKENS, False)
        assert charged.output_tokens is not None and charged.output_tokens >= len(WORDS)
        assert outcomes(router) == {Outcome.CONTINUED: 1}
        (line,) = await router.log()
        assert line["reason"] == "ok"
        assert kinds(line) == ["primary", "continuation"]
        first, second = router.replicas
        assert len(first.requests) == len(second.requests) == 1


@kit.scenario
async def test_the_other_replica_is_asked_for_what_is_left() -> None:
    fleet = Fleet(resets(4))
    async with continuing(fleet) as router:
        await router.ask(asking("chat", max_tokens=100, seed=7, user="a"))
        first, second = (request.json() for request in fleet.asked)
        assert second == {
            **first,
            "messages": [*first["messages"], {"role": "assistant", "content": "The fox met"}],
            "max_tokens": 97,
            "continue_final_message": True,
            "add_generation_prompt": False,
        }
        assert fleet.asked[1].header("content-length") == str(len(fleet.asked[1].body))


@kit.scenario
async def test_off_the_truncation_stays() -> None:
    fleet = Fleet(resets(4))
    async with kit.running(fleet, fleet, replica=VLLM) as router:
        answer = await router.ask(asking("chat"))
        kit.assert_cut_stream(answer, Reason.REPLICA_RESET)
        assert len(fleet.asked) == 1
        assert outcomes(router) == {}


@kit.scenario
async def test_a_replica_that_stops_in_the_middle() -> None:
    fleet = Fleet(stops(4))
    async with continuing(fleet, timeouts={"token_gap_s": 0.6}) as router:
        answer = await router.ask(asking("chat"))
        assert_unbroken(read(bytes(answer.body)), "chat")
        (line,) = await router.log()
        assert [record[2] for record in line["tried"]] == ["token_gap_timeout", "ok"]


DEAD = kit.event({"error": {"message": "EngineCore is gone", "code": 500}})
LONG = kit.event({"error": {"message": "x" * 9000, "code": 500}})


def fails(count: int, *last: bytes, joined: bool = False, size: int = 100_000) -> Break:
    """Send `count` events and then the error of a dying engine, in pieces of `size` bytes."""

    async def act(connection: kit.ReplicaConnection, events: list[bytes]) -> None:
        said = b"".join([*events[:count], *last])
        pieces = [kit.chunk(said[at : at + size]) for at in range(0, len(said), size)]
        await connection.send(kit.SSE_HEAD, *pieces)
        if not joined:
            await kit.rest(0.05)
        await connection.send(kit.LAST_CHUNK)

    return act


@pytest.mark.parametrize("size", [7, 100_000])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(
    "last",
    [[DEAD, kit.DONE], [DEAD], [DEAD[:-1]], [b"event: error\n" + DEAD, kit.DONE], [LONG]],
    ids=["vLLM's", "llama.cpp's", "without an end", "named", "long"],
)
@kit.scenario
async def test_an_engine_that_reports_its_failure(
    last: list[bytes], joined: bool, size: int
) -> None:
    fleet = Fleet(fails(4, *last, joined=joined, size=size))
    async with continuing(fleet) as router:
        answer = await router.ask(asking("chat"))
        if last == [DEAD[:-1]]:  # the error never became a complete event
            assert bytes(answer.body).endswith(DEAD[:-1])
            return
        assert answer.complete
        assert_unbroken(read(bytes(answer.body)), "chat")
        assert outcomes(router) == {Outcome.CONTINUED: 1}
        (line,) = await router.log()
        assert [record[2] for record in line["tried"]] == ["stream_error", "ok"]


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("last", [[DEAD, kit.DONE], [DEAD], [LONG, LONG, kit.DONE]])
@kit.scenario
async def test_its_error_is_relayed_if_no_replica_continues(
    last: list[bytes], joined: bool
) -> None:
    """The error is relayed byte for byte, and the client's connection stays open."""
    fleet = Fleet(fails(4, *last, joined=joined))
    async with continuing(fleet, 1) as router:
        client = await router.send(asking("chat"))
        answer = await client.recv_response()
        assert answer.complete
        assert bytes(answer.body) == b"".join([*stream("chat", "r0")[:4], *last])
        await client.send(asking("chat"))
        assert (await client.recv_response()).complete
        assert [line["reason"] for line in await router.log(2)] == ["stream_error", "ok"]


async def dies_and_resets(connection: kit.ReplicaConnection, events: list[bytes]) -> None:
    await connection.send(kit.SSE_HEAD, *(kit.chunk(one) for one in events[:4]), kit.chunk(DEAD))
    await kit.rest(0.05)
    connection.rst()


@kit.scenario
async def test_its_error_is_relayed_if_it_does_not_end() -> None:
    fleet = Fleet(dies_and_resets)
    async with continuing(fleet, 1) as router:
        answer = await router.ask(asking("chat"))
        kit.assert_cut_stream(answer, Reason.REPLICA_RESET)
        assert bytes(answer.body).startswith(b"".join([*stream("chat", "r0")[:4], DEAD]))


@kit.scenario
async def test_an_error_of_the_clients_is_an_answer() -> None:
    refusal = kit.event({"error": {"message": "too long", "code": 400}})
    fleet = Fleet(fails(4, refusal, kit.DONE))
    async with continuing(fleet) as router:
        answer = await router.ask(asking("chat"))
        assert answer.complete
        assert bytes(answer.body).endswith(refusal + kit.DONE)
        assert len(fleet.asked) == 1


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"stop": ["x"]}, Outcome.REQUEST),
        ({"tools": [{"type": "function"}]}, Outcome.REQUEST),
        ({"n": 2}, Outcome.REQUEST),
        ({"max_tokens": 3}, Outcome.LENGTH),
    ],
    ids=str,
)
@kit.scenario
async def test_what_cannot_be_continued(more: dict[str, Any], outcome: Outcome) -> None:
    fleet = Fleet(resets(4))
    async with continuing(fleet) as router:
        kit.assert_cut_stream(await router.ask(asking("chat", **more)), Reason.REPLICA_RESET)
        assert outcomes(router) == {outcome: 1}
        assert len(fleet.asked) == 1


@kit.scenario
async def test_a_request_too_large_to_be_kept() -> None:
    fleet = Fleet(resets(4))
    async with continuing(fleet, limits={"retry_body": 100}) as router:
        kit.assert_cut_stream(
            await router.ask(asking("chat", user="u" * 100)), Reason.REPLICA_RESET
        )
        assert len(fleet.asked) == 1


@pytest.mark.parametrize("engine", ["other", "llamacpp", "trtllm", None])
@kit.scenario
async def test_engines_that_cannot_continue(engine: str | None) -> None:
    fleet = Fleet(resets(4))
    pair = [
        kit.HostileReplica(fleet, kit.anonymous() if engine is None else None) for _ in range(2)
    ]
    async with kit.running(*pair, replica={"engine": engine}, continuation=ON) as router:
        kit.assert_cut_stream(await router.ask(asking("chat")), Reason.REPLICA_RESET)
        assert len(fleet.asked) == 1


@kit.scenario
async def test_one_that_stops_and_then_one_that_dies() -> None:
    """The stream breaks twice and is continued twice; the client gets one stream."""
    fleet = Fleet(stops(4), resets(3))
    async with continuing(fleet, 3, timeouts={"token_gap_s": 0.6}) as router:
        answer = await router.ask(asking("chat", stream_options={"include_usage": True}))
        told = read(bytes(answer.body))
        assert_unbroken(told, "chat")
        assert told.usage is not None
        assert told.usage["total_tokens"] == PROMPT_TOKENS + len(WORDS)
        assert outcomes(router) == {Outcome.CONTINUED: 2}
        (line,) = await router.log()
        assert kinds(line) == ["primary", "continuation", "continuation"]


@kit.scenario
async def test_a_second_loss_is_cut() -> None:
    """The request may crash engines, so it reaches no third replica (`retry.py`)."""
    fleet = Fleet(resets(4), resets(3))
    async with continuing(fleet, 3) as router:
        kit.assert_cut_stream(await router.ask(asking("chat")), Reason.REPLICA_RESET)
        assert len(fleet.asked) == 2
        assert outcomes(router) == {Outcome.CONTINUED: 1, Outcome.BUDGET: 1}


BUSY = kit.json_response({"error": {"message": "busy"}}, 503)
REFUSES = kit.json_response({"error": {"message": "no such field"}}, 400)
BROKEN = kit.json_response({"error": {"message": "boom"}}, 500)
NO_STREAM = kit.json_response({"choices": [{"message": {"content": "whole"}}]})
FAILS = (
    kit.SSE_HEAD
    + kit.chunk(kit.role() + kit.event({"error": {"message": "boom", "code": 500}}))
    + kit.LAST_CHUNK
)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (BUSY, Reason.REPLICA_BUSY),
        (BROKEN, Reason.SERVER_ERROR),
        (FAILS, Reason.STREAM_ERROR),
        (kit.SSE_HEAD + kit.chunk(kit.role()) + kit.LAST_CHUNK, Reason.EMPTY_STREAM),
    ],
    ids=["busy", "error", "error inside the stream", "empty"],
)
@kit.scenario
async def test_a_replica_that_does_not_continue_is_replaced(data: bytes, reason: Reason) -> None:
    fleet = Fleet(stops(4), answers(data))
    async with continuing(fleet, 3, timeouts={"token_gap_s": 0.6}) as router:
        answer = await router.ask(asking("chat"))
        assert_unbroken(read(bytes(answer.body)), "chat")
        assert outcomes(router) == {Outcome.CONTINUED: 1}
        (line,) = await router.log()
        assert [record[2] for record in line["tried"]] == ["token_gap_timeout", reason, "ok"]


@pytest.mark.parametrize("data", [REFUSES, NO_STREAM], ids=["refused", "not a stream"])
@kit.scenario
async def test_what_no_replica_would_take_is_cut(data: bytes) -> None:
    """The client gets the error of the break, not that of the continuation request."""
    fleet = Fleet(resets(4), answers(data), answers(data))
    async with continuing(fleet, 3) as router:
        answer = await router.ask(asking("chat"))
        kit.assert_cut_stream(answer, Reason.REPLICA_RESET)
        assert b"no such field" not in answer.body
        assert b'"whole"' not in answer.body
        assert outcomes(router) == {Outcome.FAILED: 1}


@kit.scenario
async def test_the_client_leaves_between_two_replicas() -> None:
    fleet = Fleet(resets(4), silence)
    async with continuing(fleet) as router:
        client = await router.send(asking("chat"))
        await kit.eventually(lambda: len(fleet.asked) == 2, "the other replica is asked")
        client.close()
        (line,) = await router.log()
        assert line["reason"] == "client_gone"
        assert kinds(line) == ["primary", "continuation"]


@kit.scenario
async def test_the_router_stops_between_two_replicas() -> None:
    fleet = Fleet(resets(4), silence)
    async with continuing(fleet, drain={"grace_s": 0.1}) as router:
        client = await router.send(asking("chat"))
        await kit.eventually(lambda: len(fleet.asked) == 2, "the other replica is asked")
        await router.app.stop()
        kit.assert_cut_stream(await client.recv_response(), Reason.DRAINING)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@kit.scenario
async def test_the_length_that_one_replica_promised_is_not_passed_on(version: str) -> None:
    """A stream with a Content-Length is continued as well: the length is not passed on."""
    events = stream("chat", "r0", usage=False)

    async def sized(connection: kit.ReplicaConnection, _: list[bytes]) -> None:
        size = sum(map(len, events))
        lines = f"content-type: text/event-stream\r\ncontent-length: {size}"
        await connection.send(f"HTTP/1.1 200 OK\r\n{lines}\r\n\r\n".encode(), *events[:4])
        await kit.rest(0.05)
        connection.rst()

    fleet = Fleet(sized)
    async with continuing(fleet) as router:
        answer = await router.ask(kit.chat(stream=True, version=version))
        assert answer.complete
        assert answer.header("content-length") is None
        assert_unbroken(read(bytes(answer.body)), "chat")


@kit.scenario
async def test_a_stream_that_does_not_break_is_as_it_was() -> None:
    async def behave(connection: kit.ReplicaConnection) -> None:
        while await connection.recv_request():
            events = [
                b": hi\n\n",
                kit.role(),
                kit.token("a"),
                kit.event({"choices": []}),
                kit.token("b", "stop"),
            ]
            await connection.send(kit.SSE_HEAD, *(kit.chunk(one) for one in events), kit.LAST_CHUNK)

    async with kit.running(behave, replica=VLLM, continuation=ON) as router:
        answer = await router.ask(kit.chat(stream=True))
        assert answer.complete
        expected = (
            b": hi\n\n"
            + kit.role()
            + kit.token("a")
            + kit.event({"choices": []})
            + kit.token("b", "stop")
        )
        assert bytes(answer.body) == expected
        assert outcomes(router) == {}
