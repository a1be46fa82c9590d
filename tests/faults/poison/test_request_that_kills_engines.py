"""A request that was in flight at the deaths of two engines is not sent to a third one."""

import asyncio

import pytest

from router.config.model import Bodies
from router.core.errors import Reason
from tests.harness.behaviours import answer_after
from tests.harness.messages import SSE_HEAD, chat, chunk, completion, json_response, token
from tests.harness.reading import Response
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, routed, running, virtual_scenario

POISON = chat(user="poison")


async def dies(connection: ReplicaConnection) -> None:
    """An engine that the poison kills before it answers."""
    while asked := await connection.recv_request():
        if b"poison" in asked.body:
            await connection.replica.die()
            return
        await connection.send(completion())


async def dies_after_an_error(connection: ReplicaConnection) -> None:
    """An engine whose API server reports the death of its core, and then ends."""
    while asked := await connection.recv_request():
        if b"poison" in asked.body:
            await connection.send(json_response({"error": {"message": "EngineDeadError"}}, 500))
            await connection.replica.die()
            return
        await connection.send(completion())


async def dies_in_the_stream(connection: ReplicaConnection) -> None:
    """An engine that the poison kills after the first token."""
    while asked := await connection.recv_request():
        if b"poison" in asked.body:
            await connection.send(SSE_HEAD, chunk(token("a")))
            await connection.replica.die()
            return
        await connection.send(completion())


def deaths(router: Router) -> int:
    return sum(any(b"poison" in r.body for r in each.requests) for each in router.replicas)


async def until_up(router: Router, count: int) -> None:
    """Wait until `count` replicas listen, and until the router knows which are up."""

    def is_known() -> bool:
        ports = {one.port for one in router.replicas if one.is_listening}
        up = {
            r.endpoint.address.port for r in router.app.parts.fleet.replicas.values() if r.health.up
        }
        return len(ports) == count and up == ports

    await eventually(is_known, f"{count} replicas up")


@routed(dies, dies, dies, policy="round_robin", virtual=True)
async def test_it_reaches_two_of_three_engines_over_new_connections(router: Router) -> None:
    answer = await router.ask(POISON)
    assert answer.status == 502
    assert deaths(router) == 2
    for _ in range(3):
        answer = await router.ask(POISON)
        assert_error(answer, Reason.SUSPECT_REQUEST, 400)
    assert deaths(router) == 2
    assert (await router.ask(chat())).status == 200
    line = (await router.log(5))[1]
    assert line["reason"] == "suspect_request"
    assert line["attempts"] == 0
    metrics = (await router.admin("/metrics")).body.decode()
    assert 'reason="suspect_request"' in metrics
    assert "hedgerow_suspect_requests 1.0" in metrics


@routed(dies, dies, dies, policy="round_robin", virtual=True)
async def test_it_reaches_two_of_three_engines_over_pooled_connections(router: Router) -> None:
    for _ in range(6):
        assert (await router.ask(chat())).status == 200
    assert (await router.ask(POISON)).status == 502
    assert deaths(router) == 2
    assert_error(await router.ask(POISON), Reason.SUSPECT_REQUEST, 400)
    assert deaths(router) == 2
    assert (await router.ask(chat())).status == 200


@pytest.mark.parametrize("behave", [dies_in_the_stream, dies_after_an_error])
@virtual_scenario
async def test_engines_that_die_after_they_began_to_answer(behave: Behaviour) -> None:
    poison = chat(stream=behave is dies_in_the_stream, user="poison")
    async with running(behave, behave, behave, policy="round_robin") as router:
        while deaths(router) < 2:  # An error of the first engine is compared with the second one.
            answer = await router.ask(poison)
            assert not answer.complete or answer.status == 500
            await until_up(router, 3 - deaths(router))
        assert_error(await router.ask(poison), Reason.SUSPECT_REQUEST, 400)
        assert deaths(router) == 2


@routed(dies, virtual=True)
async def test_an_engine_that_is_restarted_after_each_death(router: Router) -> None:
    replica = router.replica
    for _ in range(2):
        await router.ask(POISON)
        await until_up(router, 0)
        replica.start(replica.port)
        await until_up(router, 1)
    assert_error(await router.ask(POISON), Reason.SUSPECT_REQUEST, 400)
    assert (await router.ask(chat())).status == 200


@virtual_scenario
async def test_a_request_that_another_replica_answers_is_innocent() -> None:
    holding: list[HostileReplica] = []

    async def holds(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            if connection.replica in holding:
                await asyncio.Event().wait()
            await connection.send(completion())

    async with running(*[holds] * 3, policy="round_robin") as router:
        for replica in router.replicas[:2]:
            holding[:] = [replica]
            answer = await reach(router, replica, chat(user="innocent"))
            await replica.die()
            assert (await answer).status == 200
        assert (await router.ask(chat(user="innocent"))).status == 200


async def reach(router: Router, replica: HostileReplica, asked: bytes) -> asyncio.Task[Response]:
    """Send a request until this replica gets it and holds it. Returns what reads the answer."""
    while True:
        client, before = await router.client(), len(replica.requests)
        await client.send(asked)
        answer = asyncio.create_task(client.recv_response("POST"))
        await eventually(lambda: answer.done() or len(replica.requests) > before, "its way")  # noqa: B023
        if not answer.done():
            return answer
        client.close()


@virtual_scenario
async def test_replicas_that_only_close_connections_have_not_died() -> None:
    async def hangs_up(connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            if b"poison" in asked.body:
                return
            await connection.send(completion())

    async with running(*[hangs_up] * 3, policy="round_robin") as router:
        for _ in range(4):
            assert_error(await router.ask(POISON), Reason.REPLICA_RESET, 502)


@virtual_scenario
async def test_it_can_be_switched_off() -> None:
    async with running(dies, dies, dies, bodies=Bodies(suspect_s=0.0)) as router:
        for _ in range(6):
            assert (await router.ask(chat())).status == 200
        assert (await router.ask(POISON)).status == 502
        assert deaths(router) == 2
        assert (await router.ask(POISON)).status in (502, 503)
        assert deaths(router) == 3


@virtual_scenario
async def test_equal_requests_at_two_engines_that_die_at_once_are_innocent() -> None:
    holds = answer_after(0.5, completion())
    async with running(*[holds] * 4, policy="round_robin") as router:
        asked = chat(user="the same")
        asks = [asyncio.create_task(router.ask(asked)) for _ in range(2)]
        await eventually(lambda: sum(len(r.requests) for r in router.replicas) == 2, "both")
        for replica in [r for r in router.replicas if r.requests]:
            await replica.die()
        assert [(await one).status for one in asks] == [200, 200]
        assert (await router.ask(asked)).status == 200
