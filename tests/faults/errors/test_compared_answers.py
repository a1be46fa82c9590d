"""Comparing an error answer with another replica delays no client, and reaches no third replica."""

import asyncio

from tests.faults.silence.test_page_stands_still import Engine, polled, vllm
from tests.harness import kit

ERROR = {"error": {"message": "no", "type": "error", "param": None, "code": "no"}}
STREAM = (
    kit.SSE_HEAD,
    kit.chunk(kit.role()),
    kit.chunk(kit.token("t0")),
    kit.chunk(kit.DONE),
    kit.LAST_CHUNK,
)


def refuses(status: int = 401) -> kit.Behaviour:
    """An engine that answers an error to each request with the word `bad`."""
    error = kit.json_response(ERROR, status)
    return kit.answer_by(lambda asked: error if b"bad" in asked.body else kit.completion())


async def hangs(connection: kit.ReplicaConnection) -> None:
    while asked := await connection.recv_request():
        if b"bad" in asked.body:
            await asyncio.Event().wait()
        await connection.send(kit.completion())


async def reach(router: kit.Router, replica: kit.HostileReplica, asked: bytes) -> asyncio.Task[int]:
    """Send a request, of which this replica gets the first attempt. Returns what reads the status.

    The policy must be `round_robin`.
    """
    before = len(replica.requests)
    await router.ask(kit.chat(user="good"))
    if len(replica.requests) > before:
        await router.ask(kit.chat(user="good"))  # at the other replica
    client = await router.send(asked)

    async def read() -> int:
        answer = await client.recv_response("POST")
        client.close()
        return answer.status

    return asyncio.create_task(read())


@kit.virtual_scenario
async def test_a_known_error_does_not_wait_for_a_replica_that_goes_down() -> None:
    first, second = kit.HostileReplica(refuses()), kit.HostileReplica(hangs)
    async with kit.running(first, second, policy="round_robin") as router:
        answer = await reach(router, first, kit.chat(user="bad"))
        await kit.eventually(lambda: b"bad" in second.requests[-1].body, "the comparison")
        await second.stop_listening()  # From now on, its probes fail.
        assert await answer == 401


@kit.virtual_scenario
async def test_a_known_error_does_not_wait_in_the_queue() -> None:
    """The other replica works for other clients, and its KV cache is full."""
    engine = Engine(vllm, 50, 20, 0.99)
    engine.works = True
    first, second = kit.HostileReplica(refuses()), engine.replica()
    async with kit.running(first, second) as router:
        await polled(engine, router, 3)
        assert (await router.ask(kit.chat(user="bad"))).status == 401
        assert second.requests == []


@kit.virtual_scenario
async def test_a_comparison_sends_no_early_status() -> None:
    async def slowly(connection: kit.ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            if b"bad" in asked.body:
                await asyncio.sleep(1.0)  # ten times `commit_after`
                await connection.send(kit.json_response(ERROR, 401))
            else:
                await connection.send(kit.completion())

    first, second = kit.HostileReplica(refuses()), kit.HostileReplica(slowly)
    rules = {"commit_after_s": 0.1}
    async with kit.running(first, second, policy="round_robin", timeouts=rules) as router:
        answer = await reach(router, first, kit.chat(stream=True, user="bad"))
        assert await answer == 401


@kit.virtual_scenario
async def test_a_comparison_gets_no_copy() -> None:
    """The request kills the first engine after its answer, and the next ones after some work."""
    first: list[object] = []

    async def fails(connection: kit.ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            if b"bad" not in asked.body:
                await connection.send(kit.completion())
                continue
            if first:
                await asyncio.sleep(1.2)
            else:
                first.append(connection.replica)
                await connection.send(kit.json_response(ERROR, 500))
            await connection.replica.die()
            return

    async with kit.running(fails, fails, fails, policy="round_robin") as router:
        await router.ask(kit.chat("X-Priority: high", stream=True, user="bad"))
        reached = [r for r in router.replicas if any(b"bad" in one.body for one in r.requests)]
        assert len(reached) == 2


@kit.virtual_scenario
async def test_the_error_of_a_copy_is_compared_with_the_first_attempt() -> None:
    first: list[object] = []

    async def behave(connection: kit.ReplicaConnection) -> None:
        while await connection.recv_request():
            if first:
                await connection.send(kit.json_response(ERROR, 401))
                continue
            first.append(connection.replica)
            await asyncio.sleep(1.0)  # A copy is sent after half a second.
            await connection.send(*STREAM)

    async with kit.running(behave, behave, policy="round_robin") as router:
        for number in range(2):
            first.clear()
            asked = kit.chat("X-Priority: high", stream=True, user=f"{number}")
            assert (await router.ask(asked)).status == 200
        replicas = router.app.parts.fleet.replicas.values()
        assert any(replica.errors.share for replica in replicas)


@kit.virtual_scenario
async def test_a_repaired_replica_is_not_ejected_by_old_errors() -> None:
    is_sick, ends = [True], asyncio.Event()
    error = kit.json_response(ERROR, 401)
    sick = kit.answer_by(lambda asked: error if is_sick else kit.completion())

    async def works(connection: kit.ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            if b"slow" in asked.body:
                await ends.wait()
            await connection.send(kit.completion())

    first, second = kit.HostileReplica(sick), kit.HostileReplica(works)
    rules = {"suspect_min_s": 30.0}
    async with kit.running(first, second, policy="round_robin", health=rules) as router:
        slow = [asyncio.create_task(router.ask(kit.chat(user=f"slow {n}"))) for n in range(6)]
        await kit.eventually(lambda: len(second.requests) >= 6, "comparisons")
        health = router.app.parts.fleet.replicas["r0"].health
        number = 0
        while not health.ejections:
            number += 1
            await asyncio.sleep(0.05)
            assert (await router.ask(kit.chat(user=f"quick {number}"))).status == 200
        is_sick.clear()
        await kit.eventually(lambda: health.half_open, "the trial")
        for number in range(4):
            assert (await router.ask(kit.chat(user=f"good {number}"))).status == 200
        ends.set()
        assert {(await one).status for one in slow} == {200}
        assert health.ejections == 1


@kit.virtual_scenario
async def test_a_burst_of_bad_requests_pauses_no_replica() -> None:
    behave = refuses(400)
    async with kit.running(*[behave] * 4) as router:
        for _ in range(3):
            asks = [router.ask(kit.chat(user=f"bad {number}")) for number in range(40)]
            assert {answer.status for answer in await asyncio.gather(*asks)} == {400}
        assert not any(r.health.refusals for r in router.app.parts.fleet.replicas.values())
