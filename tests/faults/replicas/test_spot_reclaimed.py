"""A spot machine is reclaimed. Its replica gets no new request; its requests are moved in time."""

import asyncio
from typing import Any

import pytest

from router.config.model import Preemption, Queue, Replica, Upstream
from router.core.errors import Reason
from tests.addons.needed import needs
from tests.harness import kit

pytestmark = needs("preemption")

VLLM = {"engine": "vllm"}
FIRST = "round_robin"  # the first request goes to the first replica


async def reclaim(
    router: kit.Router, name: str = "r0", seconds: float | None = None
) -> dict[str, Any]:
    body = None if seconds is None else {"seconds": seconds}
    answer = await router.admin(f"/replicas/{name}/reclaim", "POST", body=body)
    assert answer.status == 202, answer
    found: dict[str, Any] = answer.json()
    return found


def moved(router: kit.Router) -> tuple[int, int]:
    """Requests that were sent again, and streams that were continued."""
    counts = router.app.parts.reclaims.moved
    return counts["requeued"], counts["continued"]


class Held:
    """Answers after `go`. A stream sends one token before."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            if b'"stream": true' in bytes(asked.body):
                await connection.send(kit.SSE_HEAD, kit.chunk(kit.token("a")))
                await self.go.wait()
                await connection.send(
                    kit.chunk(kit.token("b", "stop")), kit.chunk(kit.DONE), kit.LAST_CHUNK
                )
            else:
                await self.go.wait()
                await connection.send(kit.completion())


# -- what is moved, and what stays ------------------------------------------------------------


QUEUES = {
    "queue": Queue(),
    "ticket": Queue(preemption=Preemption(enabled=True)),  # every request has a ticket
    "no queue": Queue(enabled=False),
}


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
@kit.scenario
async def test_a_request_without_content_is_sent_again(queue: Queue) -> None:
    held = Held()
    async with kit.running(held, kit.json_ok, policy=FIRST, queue=queue) as router:
        client = await router.send(kit.chat())
        await kit.eventually(lambda: len(router.replica.requests) == 1, "the request")
        await reclaim(router)
        assert (await client.recv_response()).status == 200
        assert moved(router) == (1, 0)
        assert (await router.ask()).status == 200  # r0 gets no new request
        assert [len(replica.requests) for replica in router.replicas] == [1, 2]
        assert router.app.metrics.retries_by_cause == {}


@pytest.mark.parametrize("leaves", [False, True])
@kit.scenario
async def test_a_request_waits_in_the_queue_while_no_other_replica_takes_it(leaves: bool) -> None:
    """It has no ticket. Its client may leave while it waits."""
    first, second = Held(), Held()
    async with kit.running(first, second, policy=FIRST, replica={"max_inflight": 1}) as router:

        def asked() -> int:
            return sum(len(replica.requests) for replica in router.replicas)

        client, other = await router.client(), await router.client()
        for sent, each in enumerate((client, other), 1):
            await each.send(kit.chat())
            await kit.eventually(lambda sent=sent: asked() == sent, "the request")
        assert kit.waiting(router) == 0
        await reclaim(router)
        assert (moved(router), kit.waiting(router)) == ((1, 0), 1)
        if leaves:
            client.close()
            await kit.eventually(lambda: kit.waiting(router) == 0, "the queue without the request")
        second.go.set()
        assert (await other.recv_response()).status == 200
        if not leaves:
            assert (await client.recv_response()).status == 200
        assert len(router.replicas[1].requests) == 2 - leaves


@kit.scenario
async def test_a_stream_that_no_replica_may_continue_ends_by_itself() -> None:
    held = Held()
    async with kit.running(held, kit.json_ok, policy=FIRST) as router:
        client = await router.send(kit.chat(stream=True))
        await client.recv_until(b"data:")
        assert (await reclaim(router))["state"] == "draining"
        held.go.set()
        assert (await client.recv_response()).complete
        assert moved(router) == (0, 0)
        await kit.eventually(
            lambda: router.app.replicas()[0]["state"] == "drained", "the end of the stream"
        )


# -- the end of a notice ----------------------------------------------------------------------


@kit.scenario
async def test_a_replica_on_a_new_machine_returns_to_service() -> None:
    rules = {"fall": 1, "interval_s": 0.05, "slow_start_s": 0.0}
    async with kit.running(kit.json_ok, kit.json_ok, policy=FIRST, health=rules) as router:
        replica, control = router.app.parts.fleet.replicas["r0"], router.replica.control
        await reclaim(router, seconds=0.0)
        control.status = 500
        await kit.eventually(lambda: not replica.health.up, "down")
        await asyncio.sleep(1.1)  # the requests are examined once a second
        control.status = 200
        await kit.eventually(lambda: replica.state(0.0) == "ready", "back in service")


@kit.routed(kit.json_ok, kit.json_ok)
async def test_a_reload_keeps_a_notice(router: kit.Router) -> None:
    await reclaim(router)
    router.change(upstream=Upstream(token="t"))  # every replica object is replaced
    await router.app.reload()
    assert spot(router) == {"r0": True, "r1": False}
    assert [shown["state"] for shown in router.app.replicas()] == ["drained", "ready"]


@kit.routed(kit.json_ok, kit.json_ok, policy=FIRST)
async def test_an_operator_ends_a_false_notice(router: kit.Router) -> None:
    await reclaim(router)
    shown = (await router.admin("/replicas/r0/uncordon", "POST")).json()
    assert (shown["state"], shown["reclaimed_in_s"]) == ("ready", None)


@kit.scenario
async def test_a_stream_that_is_cut_is_counted() -> None:
    go = asyncio.Event()

    async def cut(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.SSE_HEAD, kit.chunk(kit.token("a")))
        await go.wait()
        connection.rst()

    async with kit.running(cut, kit.json_ok, policy=FIRST) as router:
        client = await router.send(kit.chat(stream=True))
        await client.recv_until(b"data:")
        await reclaim(router, seconds=0.0)
        await kit.eventually(lambda: router.app.parts.reclaims.left == 1, "the time of the notice")
        go.set()
        kit.assert_cut_stream(await client.recv_response(), Reason.REPLICA_RESET)
        page = (await router.admin("/metrics")).body
        assert b"hedgerow_spot_left_total 1.0" in page
        assert b'hedgerow_spot_notices_total{source="admin"} 1.0' in page


# -- sources ----------------------------------------------------------------------------------


def spot(router: kit.Router) -> dict[str, bool]:
    """Whether each replica was reclaimed."""
    return {shown["id"]: shown["reclaimed_in_s"] is not None for shown in router.app.replicas()}


def three(*urls: str) -> tuple[Replica, ...]:
    """One spot replica, one replica on the machine n, and one other replica."""
    return (
        Replica(url=urls[0], id="r0", spot=True),
        Replica(url=urls[1], id="r1", node="n"),
        Replica(url=urls[2], id="r2"),
    )
