"""A replica whose metrics hang, are too large, slow, malformed or missing still gets requests."""

import asyncio

import pytest

from tests.harness.behaviours import json_ok, until_closed
from tests.harness.control import METRICS, Answer, Control
from tests.harness.messages import chat, head, response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import running, virtual_scenario


def with_metrics(answer: Answer) -> HostileReplica:
    """An engine that generates normally, with this answer to metrics requests."""
    return HostileReplica(json_ok, Control(at={METRICS: answer}))


def says(data: bytes) -> Answer:
    async def answer(connection: ReplicaConnection) -> None:
        await connection.send(data)

    return answer


async def flood(connection: ReplicaConnection) -> None:
    """100 MB of lines that look like valid metrics."""
    await connection.send(head("HTTP/1.1 200 OK", ["Content-Length: 104857600"]))
    block = b'vllm:num_requests_running{engine="0"} 1\n' * 1000
    try:
        while True:
            await connection.send(block)
    except OSError:
        pass


async def flood_in_chunks(connection: ReplicaConnection) -> None:
    await connection.send(head("HTTP/1.1 200 OK", ["Transfer-Encoding: chunked"]))
    block = b"#\n" * 8192
    try:
        while True:
            await connection.send(b"%x\r\n%b\r\n" % (len(block), block))
    except OSError:
        pass


async def drip(connection: ReplicaConnection) -> None:
    await connection.send(head("HTTP/1.1 200 OK", ["Content-Length: 100000"]))
    try:
        while True:
            await connection.send(b"#")
            await asyncio.sleep(0.001)
    except OSError:
        pass


async def reset(connection: ReplicaConnection) -> None:
    connection.rst()
    raise ConnectionResetError


FAULTS: list[tuple[Answer, str]] = [
    (until_closed, "timeout"),
    (drip, "timeout"),
    (flood, "too_large"),
    (flood_in_chunks, "too_large"),
    (reset, "refused"),
    (says(response(500)), "status"),
    (says(response(404)), "status"),
    (says(response(302, "Location: http://127.0.0.1:1/metrics")), "status"),
    (says(response(200, "Content-Encoding: gzip", body=b"\x1f\x8b\x08")), "garbage"),
    (says(response(200, body=b"vllm:num_requests_running NaN\n")), "garbage"),
    (says(response(200, body=b"vllm:num_requests_running -3\n")), "garbage"),
    (says(response(200, body=b"renamed:num_requests_running 3\n")), "nothing"),
    (says(response(200)), "nothing"),
]


@pytest.mark.parametrize(
    ("answer", "problem"), FAULTS, ids=lambda value: getattr(value, "__name__", value)
)
@virtual_scenario
async def test_requests_go_on(answer: Answer, problem: str) -> None:
    async with running(
        with_metrics(answer),
        replica={"engine": "vllm"},
    ) as router:
        failed = router.app.parts.fleet.polls.failed
        assert (await router.ask(chat())).status == 200
        await eventually(lambda: bool(failed.get(problem)), "a poll fails")
        assert (await router.ask(chat())).status == 200
        assert set(failed) == {problem}
        (replica,) = router.app.parts.fleet.replicas.values()
        assert replica.health.up
        assert replica.health.failures == 0
        await eventually(lambda: replica.load == replica.waiting == 0, "no load left")
        assert {line["reason"] for line in await router.log(2)} == {"ok"}


@virtual_scenario
async def test_a_hanging_endpoint_is_asked_once_at_a_time() -> None:
    async with running(
        with_metrics(until_closed),
        polling={"interval_s": 0.02, "timeout_s": 30.0},
        replica={"engine": "vllm"},
    ) as router:
        await eventually(lambda: polls_of(router.replica) == 1, "a poll")
        for _ in range(20):
            assert (await router.ask(chat())).status == 200
        assert polls_of(router.replica) == 1


def polls_of(replica: HostileReplica) -> int:
    """Requests for the replica's metrics."""
    asked = [request for c in replica.connections for request in c.reader.done]
    return sum(request.target == METRICS for request in asked)
