"""The operator changes the fleet while a request connects, pauses before a retry, or waits."""

import asyncio
import json

import pytest

from tests.harness.behaviours import answer, chat_either, json_ok
from tests.harness.client import RawClient
from tests.harness.listeners import blackhole
from tests.harness.messages import chat, request, response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario

FIRST = "round_robin"  # the first request goes to the first replica

# A drain lets the attempt finish, so the connect timeout ends it. The others do not wait for that.
ACTIONS = [("DELETE", "", 600.0), ("POST", "/reclaim", 600.0), ("POST", "/drain", 0.5)]


class Gate:
    """Answers a request after `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, connection: ReplicaConnection) -> None:
        await self.go.wait()
        await chat_either(connection)


def states(router: Router) -> dict[str, str]:
    return {shown["id"]: shown["state"] for shown in router.app.replicas()}


@pytest.mark.parametrize(("method", "path", "connect_s"), ACTIONS)
@scenario
async def test_while_a_request_connects(method: str, path: str, connect_s: float) -> None:
    """A request that has no connection yet is served, by another replica if it must leave."""
    dark = HostileReplica(json_ok)
    dark.start()
    why = "a probe would find the port dark"
    async with running(
        dark, json_ok, policy=FIRST, timeouts={"connect_s": connect_s}, quiet_control_plane=why
    ) as router:
        router.app.parts.fleet.replicas["r0"].close_idle()
        await dark.stop_listening()
        with blackhole(dark.port):
            client = await router.send(chat())
            await eventually(lambda: router.app.census()["replica_connecting"] == 1, "connect")
            answered = await router.admin(f"/replicas/r0{path}", method)
            assert answered.status < 300
            assert (await client.recv_response()).status == 200
        assert len(router.replicas[1].requests) == 1


@scenario
async def test_the_next_replica_leaves_during_a_pause_before_a_retry() -> None:
    busy = answer(response(503))
    retry = {"backoff_s": 0.3, "backoff_max_s": 0.3}
    async with running(busy, json_ok, json_ok, policy=FIRST, retry=retry) as router:
        client = await router.send(chat())
        await eventually(lambda: len(router.replica.requests) == 1, "the first attempt")
        await router.admin("/replicas/r1", "DELETE")
        await router.admin("/replicas/r0", "DELETE")
        assert (await client.recv_response()).status == 200
        assert len(router.replicas[2].requests) == 1
        assert states(router) == {"r2": "ready"}


@scenario
async def test_every_replica_leaves_and_another_comes() -> None:
    async with HostileReplica(json_ok) as other, running(json_ok, policy=FIRST) as router:
        assert (await router.admin("/replicas/r0", "DELETE")).status == 202
        assert states(router) == {}
        assert not router.app.parts.fleet.serving.ready
        assert (await router.admin("/readyz")).status == 200  # Requests wait.
        assert (await router.admin("/metrics")).status == 200
        client = await router.send(chat())
        await eventually(lambda: router.app.census()["queued"] == 1, "a waiting request")
        added = await router.admin("/replicas", "POST", body={"url": other.url, "id": "r0"})
        assert added.status == 201  # the ID of a removed replica may be used again
        assert (await client.recv_response()).status == 200
        assert len(other.requests) == 1


@scenario
async def test_a_cordon_while_the_queue_is_full() -> None:
    gates = Gate(), Gate()
    one = {"max_inflight": 1}
    async with running(*gates, policy=FIRST, replica=one) as router:
        clients = [await router.client() for _ in range(6)]
        for client in clients:
            await client.send(chat())
        await eventually(lambda: router.app.census()["queued"] == 4, "a full fleet")
        await router.admin("/replicas/r0/cordon", "POST")
        gates[0].go.set()
        await eventually(lambda: router.app.census()["leases"] == 1, "the end at r0")
        assert router.app.census()["queued"] == 4, "r0 takes none of them"
        await router.admin("/replicas/r0/uncordon", "POST")
        answers = [await client.recv_response() for client in clients[2:]]
        gates[1].go.set()
        answers += [await client.recv_response() for client in clients[:2]]
        assert [each.status for each in answers] == [200] * 6
        assert [len(each.requests) for each in router.replicas] == [5, 1]


@scenario
async def test_changes_and_reloads_at_the_same_time() -> None:
    others = [HostileReplica(json_ok) for _ in range(3)]
    for other in others:
        other.start()
    async with running(json_ok, json_ok, policy=FIRST) as router:
        entries = [{"url": other.url, "id": f"n{n}"} for n, other in enumerate(others)]
        calls = [
            *(router.admin("/replicas", "POST", body=entry) for entry in entries),
            *(router.admin("/reload", "POST") for _ in range(3)),
            *(router.admin("/replicas", "POST", body=entry) for entry in entries),
            router.admin("/replicas/r1", "DELETE"),
            *(router.admin("/replicas/r0/drain", "POST") for _ in range(2)),
            router.admin("/replicas/r0/uncordon", "POST"),
        ]
        found = [each.status for each in await asyncio.gather(*calls)]
        assert sorted([*found[:3], *found[6:9]]) == [201] * 3 + [409] * 3
        assert found[3:6] == [200] * 3
        await router.app.reload()
        assert {*states(router)} == {"r0", "r1", "n0", "n1", "n2"}
        await eventually(lambda: len(router.app.parts.fleet.serving.ready) >= 4, "the probes")
        assert router.app.census()["probes"] == 5
        for _ in range(4):
            assert (await router.ask()).status == 200
        for n in range(3):
            await router.admin(f"/replicas/n{n}", "DELETE")
        await eventually(lambda: router.app.census()["probes"] == 2, "the end of the probes")
    for other in others:
        await other.stop()


@scenario
async def test_a_replica_that_is_added_during_the_stop_is_not_probed() -> None:
    """`scenario` fails if a task of the replica remains."""
    async with HostileReplica(json_ok) as other:
        body = json.dumps({"url": other.url, "id": "late"}).encode()
        async with running(json_ok) as router:
            app = router.app
            client = await RawClient.connect(app.admin_port)
            await client.send(request("/replicas", method="POST", body=body)[:-1])
            await asyncio.sleep(0.05)  # the listener waits for the last byte
            stop = asyncio.create_task(app.stop())
            await asyncio.sleep(0)
            await client.send(body[-1:])
            await stop
            assert app.census()["probes"] == app.census()["polls"] == 0
            client.close()
