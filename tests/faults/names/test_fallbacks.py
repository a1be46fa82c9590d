"""A request that cannot be served goes to the next fallback of its model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from router.config.model import Replica
from tests.faults.names.engines import Engine, settings
from tests.faults.process.metrics import number
from tests.harness.behaviours import rst_after_request
from tests.harness.messages import SSE_HEAD, chat, chunk, event
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario

SHORT = {"normal": {"absent": "100ms", "wait": "0"}}


class Failing(HostileReplica):
    """Serves the model `a`, with one behaviour."""

    def __init__(self, behave: Behaviour) -> None:
        super().__init__(behave, models=("a",))


def once(act: Callable[[ReplicaConnection], Any]) -> Behaviour:
    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await act(connection)

    return behave


async def empty_stream(connection: ReplicaConnection) -> None:
    await connection.send(SSE_HEAD + b"0\r\n\r\n")


async def error_in_stream(connection: ReplicaConnection) -> None:
    error = event({"error": {"message": "broken", "code": 500}})
    await connection.send(SSE_HEAD, chunk(error), b"0\r\n\r\n")


def says(status: int) -> Behaviour:
    engine = Engine("a")
    engine.status = status
    return engine.behave


@asynccontextmanager
async def fleet(
    first: HostileReplica,
    second: HostileReplica,
    *,
    route: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Router]:
    """The model `a` falls back to `b`."""
    rules = {"fallbacks": ["b"], "restore_name": True, **(route or {})}
    sections = settings(models={"a": rules}, classes=SHORT)
    async with running(first, second, **{**sections, **more}) as router:
        yield router


async def fell(router: Router, cause: str) -> float:
    return await number(router.app.admin_port, "hedgerow_fallbacks_total", cause=cause)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "behave",
    [rst_after_request, once(empty_stream), once(error_in_stream), says(500), says(503), says(429)],
    ids=["rst_after_request", "empty", "error", "500", "503", "429"],
)
@scenario
async def test_a_failure_before_content_is_hidden(behave: Behaviour, stream: bool) -> None:
    first, second = Failing(behave), Engine("b")
    async with fleet(first, second) as router:
        response = await router.ask(chat(model="a", stream=stream))
        assert response.status == 200 and response.complete, response
        assert second.asked == ["b"]
        assert b'"a"' in response.body and b'"b"' not in response.body
        line = (await router.log())[0]
        assert (line["model"], line["served_model"]) == ("a", "b")
        assert [attempt[1] for attempt in line["tried"]][-1] == "fallback"
        assert await fell(router, "failure") == 1.0


@scenario
async def test_no_replica_of_the_model_is_up() -> None:
    """The request goes to the fallback at once; it does not wait for a replica."""
    first, second = Engine("a"), Engine("b")
    async with fleet(first, second, classes=settings(classes={})["classes"]) as router:
        await first.stop()
        await eventually(lambda: not router.app.replicas()[0]["up"], "the replica is down")
        async with asyncio.timeout(10.0):
            assert (await router.ask(chat(model="a"))).status == 200
        assert second.asked == ["b"]
        assert await fell(router, "no_replica") == 1.0


@scenario
async def test_a_full_queue() -> None:
    async def hangs(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await asyncio.sleep(60)

    first, second = Failing(hangs), Engine("b")
    limits = settings(classes={"normal": {"depth": 1}})
    async with fleet(first, second, replica={"max_inflight": 1}, **limits) as router:
        clients = [await router.client() for _ in range(4)]
        for client in clients[:2]:
            await client.send(chat(model="a"))
        await eventually(lambda: bool(router.app.census()["queued"]), "one request waits")
        for client in clients[2:]:
            await client.send(chat(model="a"))
            assert (await client.recv_response()).status == 200
        assert second.asked == ["b", "b"]
        assert await fell(router, "queue_full") == 2.0


@scenario
async def test_after_content_there_is_no_fallback() -> None:
    async def breaks(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        token = event({"model": "a", "choices": [{"index": 0, "delta": {"content": "x"}}]})
        await connection.send(SSE_HEAD, chunk(token))
        connection.rst()

    first, second = Failing(breaks), Engine("b")
    async with fleet(first, second) as router:
        response = await router.ask(chat(model="a", stream=True))
        assert not response.complete
        assert second.asked == []


@scenario
async def test_each_fallback_is_tried_in_order() -> None:
    """The client gets the error of the last one."""
    first, second, third = Engine("a"), Engine("b"), Engine("c")
    first.status, second.status, third.status = 500, 503, 502
    async with running(
        *(first, second, third), **settings(models={"a": {"fallbacks": ["no", "b", "c"]}})
    ) as router:
        assert (await router.ask(chat(model="a"))).status == 502
        assert (first.asked, second.asked, third.asked) == (["a"], ["b"], ["c"])
        third.status = 200
        assert (await router.ask(chat(model="a"))).status == 200
        assert third.asked == ["c", "c"]


@scenario
async def test_another_pool_of_the_same_model() -> None:
    first, second = Engine("m"), Engine("m")
    first.start()
    second.start()
    replicas = (
        Replica(url=first.url, id="r0", pool="main"),
        Replica(url=second.url, id="r1", pool="spare"),
    )
    route = {"targets": [{"pool": "main"}], "fallbacks": [{"pool": "spare"}]}
    sections = settings(models={"m": route}, pools={"main": {}, "spare": {}})
    async with running(first, second, replicas=replicas, **sections) as router:
        assert (await router.ask()).status == 200
        assert second.asked == []
        first.status = 500
        assert (await router.ask()).status == 200
        assert second.asked == ["m"]


@scenario
async def test_a_client_that_leaves_during_the_fallback_leaves_nothing() -> None:
    async def hangs(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await asyncio.sleep(60)

    first, second = Engine("a"), HostileReplica(hangs, models=("b",))
    first.status = 500
    async with fleet(first, second) as router:
        client = await router.send(chat(model="a", stream=True))
        await second.wait_for_requests(1)
        client.rst()
        await router.quiet()
        assert (await router.log())[0]["reason"] == "client_gone"


@scenario
async def test_a_reload_in_between_keeps_the_names_of_a_running_request() -> None:
    waits = asyncio.Event()

    async def late_error(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await waits.wait()
        await connection.send(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")

    first, second = Failing(late_error), Engine("b")
    async with fleet(first, second) as router:
        client = await router.send(chat(model="a"))
        await first.wait_for_requests(1)
        router.change(models={})
        await router.app.reload()
        waits.set()
        assert (await client.recv_response()).status == 200
        assert second.asked == ["b"]
