"""Tokenizing and counting need no GPU: they are sent at once, even if all engines are full."""

import json

import pytest

from router.core.errors import Reason
from tests.harness.messages import completion, post_json, request
from tests.harness.queueing import BY_HAND, ONE, Turnstile, queue, send, waiting
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import assert_error, running, scenario

PATHS = ("/tokenize", "/detokenize", "/v1/messages/count_tokens")


class Engine(Turnstile):
    """An engine that serves one chat at a time, and every other request at once."""

    async def __call__(self, connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            if asked.target in PATHS or asked.method == "GET":
                self.tags.append(asked.target)
            else:
                self.tags.append(json.loads(asked.body).get("tag", ""))
                await self.permits.acquire()
            await connection.send(completion())


@pytest.mark.parametrize("path", PATHS)
@scenario
async def test_it_passes_a_full_queue(path: str) -> None:
    engine = Engine()
    async with running(
        engine, replica=ONE, queue=queue(), quiet_control_plane="polls count as well"
    ) as router:
        clients = [await send(router, "first", queued=False), await send(router, "second")]
        (replica,) = router.app.parts.fleet.replicas.values()
        before = (replica.waiting, replica.load, replica.pending_tokens)
        body = {"model": "m", "prompt": "a few words"}
        assert (await router.ask(post_json(path, body), "POST")).status == 200
        assert engine.tags == ["first", path]
        assert waiting(router) == 1
        assert (replica.waiting, replica.load, replica.pending_tokens) == before
        engine.open(2)
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert replica.inflight == 0


@scenario
async def test_while_it_is_under_way_it_is_no_load_and_takes_no_place_in_the_queue() -> None:
    turnstile = Turnstile()
    async with running(turnstile, queue=queue()) as router:
        (replica,) = router.app.parts.fleet.replicas.values()
        clients = []
        for number in range(20):
            client = await router.send(post_json("/tokenize", {"model": "m", "tag": str(number)}))
            clients.append(client)
        await router.replica.wait_for_requests(20)
        assert (replica.inflight, replica.waiting, replica.load) == (20, 0, 0)
        chatting = await send(router, "chat", queued=False)
        await router.replica.wait_for_requests(21)
        turnstile.open(21)
        for client in (*clients, chatting):
            assert (await client.recv_response()).status == 200
        assert (replica.inflight, replica.waiting, replica.load) == (0, 0, 0)


@scenario
async def test_the_least_loaded_replica_answers() -> None:
    engines = [Engine(), Engine()]
    async with running(*engines, queue=queue(), policy="round_robin") as router:
        first = await send(router, "first", queued=False)
        await eventually(lambda: any(engine.tags for engine in engines), "it is with an engine")
        busy = engines[0] if engines[0].tags else engines[1]
        idle = engines[1] if busy is engines[0] else engines[0]
        for _ in range(4):
            assert (await router.ask(post_json("/tokenize", {"model": "m"}), "POST")).status == 200
        assert (len(busy.tags), len(idle.tags)) == (1, 4)
        busy.open()
        assert (await first.recv_response()).status == 200


@scenario
async def test_it_still_names_a_model_that_exists_and_a_replica_that_is_fit() -> None:
    async with running(Engine(), queue=queue(), quiet_control_plane=BY_HAND) as router:
        unknown = await router.ask(post_json("/tokenize", {"model": "other"}), "POST")
        assert_error(unknown, Reason.MODEL_NOT_FOUND, 404)
        fleet = router.app.parts.fleet
        (replica,) = fleet.replicas.values()
        replica.health.up = False
        fleet.rebuild()
        gone = await router.ask(post_json("/tokenize", {"model": "m"}), "POST")
        assert_error(gone, Reason.NO_REPLICA, 503)
        assert_error(await router.ask(request("/version")), Reason.NO_REPLICA, 503)


@scenario
async def test_it_proves_nothing_of_generation_and_promises_no_prefix() -> None:
    async with running(Engine(), queue=queue(), quiet_control_plane=BY_HAND) as router:
        fleet = router.app.parts.fleet
        (replica,) = fleet.replicas.values()
        replica.health.suspected_at = 0.0
        long = {"model": "m", "prompt": "word " * 4000}
        assert (await router.ask(post_json("/tokenize", long), "POST")).status == 200
        assert replica.health.suspected_at == 0.0
        assert router.app.parts.fleet.knowledge.prefixes.stats.entries == 0
