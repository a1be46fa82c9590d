"""The load generator's client: conversations grow by the answers; only whole answers count."""

import json
from typing import Any

import pytest

from bench.fleet.engines import read_counters
from bench.fleet.player import Player
from bench.fleet.script import Conversation, Script, Turn
from tests.harness.behaviours import answer
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chunk, event, json_response, token
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection
from tests.harness.running import scenario

WHOLE = SSE_HEAD + chunk(token("abcd")) + chunk(token("efgh")) + chunk(DONE) + LAST_CHUNK


async def play(behave: Behaviour, *conversations: Conversation) -> tuple[dict[str, Any], Any]:
    async def count() -> list[dict[str, float]]:
        return [read_counters(b"")]

    replica = HostileReplica(behave)
    replica.start()
    try:
        script = Script(conversations, 0.0, conversations[-1].at + 1.0)
        played = await Player(script, "127.0.0.1", replica.port, "m", count).play()
    finally:
        await replica.stop()
    return played, replica


def once(*turns: Turn, at: float = 0.0) -> Conversation:
    return Conversation(at, "", turns)


async def whole(connection: ReplicaConnection) -> None:
    while await connection.recv_request():
        await connection.send(WHOLE)


@scenario
async def test_every_turn_carries_the_answers_before_it() -> None:
    talk = Conversation(0.0, "be brief", (Turn("one", 2), Turn("two", 2), Turn("three", 2)))
    played, replica = await play(whole, talk)
    assert [r["error"] for r in played["records"]] == ["", "", ""]
    assert [r["output_tokens"] for r in played["records"]] == [2, 2, 2]
    bodies = [json.loads(request.body) for request in replica.requests]
    said = [[m["content"] for m in body["messages"]] for body in bodies]
    assert said[2] == ["be brief", "one", "abcdefgh", "two", "abcdefgh", "three"]
    assert said[1] == said[2][:4] and said[0] == said[2][:2]
    assert all(body["stream"] and body["max_tokens"] == 2 for body in bodies)
    assert len(replica.sessions) == 1  # the client reuses the connection
    first = played["records"][0]
    assert 0 <= first["ttft"] <= first["seconds"]
    assert played["tokens_in_window"] == 6


@scenario
async def test_how_urgent_a_conversation_is_stands_in_its_head() -> None:
    urgent = Conversation(0.0, "", (Turn("now", 2),), "high", "7")
    talks = urgent, once(Turn("some day", 2), at=0.2)
    played, replica = await play(whole, *talks)
    assert [r["urgency"] for r in played["records"]] == ["high", ""]
    assert [request.header("x-priority") for request in replica.requests] == ["high", None]
    assert [request.header("x-emulate-key") for request in replica.requests] == ["7", None]


BROKEN = {
    "status 503": json_response({"error": {"message": "no"}}, 503),
    "stream without [DONE]": SSE_HEAD + chunk(token("abcdefgh")) + LAST_CHUNK,
    "short answer": SSE_HEAD + chunk(token("abcd")) + chunk(DONE) + LAST_CHUNK,
    "error event": SSE_HEAD + chunk(event({"error": {"message": "no"}})) + chunk(DONE) + LAST_CHUNK,
    "unreadable event": SSE_HEAD + chunk(b"data: {oops\n\n") + chunk(DONE) + LAST_CHUNK,
    "unreadable answer": b"HTTP/9 what\r\n\r\n",
}


@pytest.mark.parametrize("reason", BROKEN)
@scenario
async def test_what_is_not_whole_is_an_error_and_ends_the_conversation(reason: str) -> None:
    played, _ = await play(answer(BROKEN[reason]), once(Turn("one", 2), Turn("two", 2)))
    assert [r["error"] for r in played["records"]] == [reason]


@scenario
async def test_only_what_is_due_while_measuring_is_measured() -> None:
    async def count() -> list[dict[str, float]]:
        return [read_counters(b"")]

    replica = HostileReplica(whole)
    replica.start()
    try:
        script = Script((once(Turn("early", 2)), once(Turn("late", 2), at=0.1)), 0.1, 0.2)
        played = await Player(script, "127.0.0.1", replica.port, "m", count).play()
        beyond = Script((once(Turn("a", 2), Turn("b", 2, think_s=5.0)),), 0.0, 0.1)
        short = await Player(beyond, "127.0.0.1", replica.port, "m", count).play()
    finally:
        await replica.stop()
    assert [r["measured"] for r in played["records"]] == [False, True]
    assert len(short["records"]) == 1  # the second turn is due after the end of the script
    assert played["measured_s"] == pytest.approx(0.1)


def test_counters_are_read_from_an_exposition() -> None:
    exposition = (
        b"# TYPE vllm:num_requests_running gauge\n"
        b'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
        b'vllm:num_requests_waiting{engine="0",model_name="m"} 1.0\n'
        b'vllm:request_success_total{finished_reason="stop",model_name="m"} 40.0\n'
        b'vllm:request_success_total{finished_reason="length",model_name="m"} 7.0\n'
        b'vllm:prefix_cache_queries_total{engine="0"} 1000.0\n'
        b'vllm:prefix_cache_hits_total{engine="0"} 250.0\n'
        b'vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0\n'
    )
    assert read_counters(exposition) == {
        "requests": 50.0,
        "queried": 1000.0,
        "hits": 250.0,
        "preemptions": 0.0,
    }
