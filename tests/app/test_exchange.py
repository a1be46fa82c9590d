"""An exchange between a real client and real replicas, beyond the pure decisions."""

import asyncio
import json
from typing import Any

from tests.harness.behaviours import echo, hang, json_ok
from tests.harness.listeners import dead_url
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    completion,
    event,
    post_json,
    request,
    response,
    token,
)
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually, rest
from tests.harness.running import running, scenario


@scenario
async def test_a_client_that_does_not_read_gets_no_further_answer() -> None:
    """Pipelined requests continue only when their client has room for the answers."""
    count = 80
    answer = response(200, body=b'{"pad": "%b"}' % (b"x" * 240_000))

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(answer)

    async with running(behave) as router:
        client = await router.client(receive_buffer=4096)
        await client.send(chat() * count)
        asked = -1
        while asked != len(router.replica.requests):
            asked = len(router.replica.requests)
            await rest(0.1)
        (inside,) = router.app.parts.front.clients
        held = inside.transport.get_write_buffer_size()
        assert held < 1_000_000, f"{held} bytes of {asked} answers wait for who reads nothing"
        assert asked < count
        for _ in range(count):
            assert (await client.recv_response()).status == 200


@scenario
async def test_a_get_does_not_fail_on_a_dead_replica_of_another_model() -> None:
    """A GET names no model, so any replica may answer it, also on a retry."""
    live = HostileReplica(echo)
    async with running(live, dead_url(), replica={"models": None}, policy="round_robin") as router:
        fleet = router.app.parts.fleet
        alive, dead = fleet.replicas.values()
        fleet.probes.learned(alive, {"a": {"id": "a"}})
        fleet.probes.learned(dead, {"b": {"id": "b"}})
        dead.health.up = True  # the router has not noticed the failure yet
        fleet.rebuild()
        statuses = [(await router.ask(request("/version-of-mine"))).status for _ in range(4)]
        assert statuses == [200] * 4


@scenario
async def test_the_owner_of_a_stored_response_is_learned_from_any_pieces() -> None:
    created = event({"type": "response.created", "response": {"id": "resp_abc", "object": "r"}})
    delta = event({"type": "response.output_text.delta", "delta": "x"})
    done = event({"type": "response.completed", "response": {"id": "resp_abc"}})

    def owner(number: int) -> Any:
        async def behave(connection: ReplicaConnection) -> None:
            while asked := await connection.recv_request():
                if asked.method == "GET":
                    await connection.send(response(200, body=b'{"at": %d}' % number))
                    continue
                await connection.send(SSE_HEAD)
                at = created.index(b"resp_abc") + 4
                for piece in (created[:at], created[at:], delta, done):
                    await connection.send(chunk(piece))
                    await asyncio.sleep(0.005)
                await connection.send(LAST_CHUNK)

        return behave

    async with running(owner(0), owner(1), policy="round_robin") as router:
        body = {"model": "m", "input": "hi", "stream": True}
        assert (await router.ask(post_json("/v1/responses", body))).complete
        made_at = 0 if router.replicas[0].requests else 1
        for _ in range(4):
            found = await router.ask(request("/v1/responses/resp_abc"))
            assert json.loads(bytes(found.body)) == {"at": made_at}


@scenario
async def test_waiting_for_a_connection_ends_with_its_client() -> None:
    async with running(hang, limits={"connecting": 1}, replica={"max_inflight": 3}) as router:
        clients = [await router.client() for _ in range(3)]
        for client in clients:
            await client.send(chat())
        await router.replica.wait_for_requests(3)
        for client in clients:
            client.rst()
        await router.quiet()
        assert {line["reason"] for line in await router.log(3)} == {"client_gone"}


@scenario
async def test_a_connection_that_becomes_free_serves_a_waiting_request() -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await go.wait()
        await connection.send(completion())
        await json_ok(connection)

    async with running(behave) as router:
        asks = [asyncio.ensure_future(router.ask(chat())) for _ in range(5)]
        await router.replica.wait_for_requests(5)
        go.set()
        assert [(await ask).status for ask in asks] == [200] * 5
        pool = next(iter(router.app.parts.fleet.replicas.values())).pool
        opened = pool.opened
        assert (await router.ask(chat())).status == 200
        assert pool.opened == opened


@scenario
async def test_a_half_open_replica_gets_one_request_at_a_time() -> None:
    async with running(
        hang, json_ok, health={"eject_base_s": 3600.0}, policy="round_robin"
    ) as router:
        trial, _ = router.app.parts.fleet.replicas.values()
        trial.health.half_open = True
        router.app.parts.fleet.rebuild()
        clients = [await router.client() for _ in range(6)]
        for client in clients:
            await client.send(chat())
        await eventually(lambda: len(router.replicas[1].requests) == 5, "the others elsewhere")
        assert len(router.replicas[0].requests) == 1
        for client in clients:
            client.rst()


@scenario
async def test_a_stream_that_begins_with_comments_is_relayed_whole() -> None:
    events = [b": hello\n\n", token("a"), b": ping\n\n", token("b", "stop"), DONE]

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD)
        for one in events:
            for byte in one:
                await connection.send(chunk(bytes([byte])))
        await connection.send(LAST_CHUNK)

    async with running(behave) as router:
        found = await router.ask(chat(stream=True))
        assert found.complete
        assert bytes(found.body) == b"".join(events)
