"""A replica whose health path answers too late stays up while it works.

A server answers late during a long prefill or a compilation. A refused connection or an error
status still counts, whatever the engine does.
"""

import asyncio
from collections.abc import Callable

import pytest

from tests.harness.behaviours import until_closed
from tests.harness.control import HEALTH, METRICS, Control
from tests.harness.messages import SSE_HEAD, chat, chunk, completion, response, token
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, virtual_scenario


class Engine:
    """An engine whose health path can be made to answer late, or with an error."""

    def __init__(self) -> None:
        self.total = 0
        self.counts = False  # whether its totals grow from poll to poll
        self.probes = 0
        self.answer: Callable[[ReplicaConnection], object] | None = None
        self.streams = asyncio.Event()  # set: no more tokens

    def replica(self) -> HostileReplica:
        return HostileReplica(self.serve, Control(at={METRICS: self.page, HEALTH: self.health}))

    async def health(self, connection: ReplicaConnection) -> None:
        self.probes += 1
        if self.answer is None:
            await connection.send(response(200))
        else:
            await self.answer(connection)  # type: ignore[misc]

    async def page(self, connection: ReplicaConnection) -> None:
        self.total += self.counts
        text = f"vllm:num_requests_running 1\nvllm:generation_tokens_total {self.total}\n"
        await connection.send(response(body=text.encode(), content_type="text/plain"))

    async def serve(self, connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if b'"stream": true' not in bytes(request.body):
                await connection.send(completion())
                continue
            await connection.send(SSE_HEAD)
            while connection.ended is None and not self.streams.is_set():
                await connection.send(chunk(token()))
                await asyncio.sleep(0.5)


async def says_500(connection: ReplicaConnection) -> None:
    await connection.send(response(500))


def state(router: Router) -> str:
    return str(router.app.replicas()[0]["state"])


async def probed(engine: Engine, count: int) -> None:
    seen = engine.probes
    await eventually(lambda: engine.probes > seen + count, f"{count} probes")


@pytest.mark.parametrize("shows", ["totals", "tokens"])
@virtual_scenario
async def test_it_stays_up_while_it_works(shows: str) -> None:
    engine = Engine()
    polling = {} if shows == "totals" else {"interval_s": 0.0}
    async with running(engine.replica(), polling=polling) as router:
        client = await router.client()
        if shows == "totals":
            engine.counts = True
        else:
            await client.send(chat(stream=True))
            await client.recv_until(b'"token"')
        engine.answer = until_closed
        for _ in range(4):
            await probed(engine, 4)
            assert state(router) == "ready"
            assert (await router.ask(chat())).status == 200
        engine.counts = False
        engine.streams.set()
        await eventually(lambda: state(router) == "down", "down without work")
        engine.answer = None
        await eventually(lambda: state(router) == "ready", "up")
        client.rst()


@virtual_scenario
async def test_a_late_answer_counts_without_work() -> None:
    engine = Engine()
    async with running(engine.replica()) as router:
        engine.answer = until_closed
        await eventually(lambda: state(router) == "down", "down")


@pytest.mark.parametrize("fault", ["error", "refused"])
@virtual_scenario
async def test_any_other_failure_counts_while_it_works(fault: str) -> None:
    engine = Engine()
    engine.counts = True
    replica = engine.replica()
    async with running(replica) as router:
        client = await router.send(chat(stream=True))
        await client.recv_until(b'"token"')
        if fault == "error":
            engine.answer = says_500
        else:
            await replica.stop_listening()
        await eventually(lambda: state(router) == "down", "down")
        assert router.app.replicas()[0]["inflight"] == 1
        client.rst()


@virtual_scenario
async def test_work_does_not_bring_it_up() -> None:
    engine = Engine()
    async with running(engine.replica()) as router:
        engine.answer = says_500
        await eventually(lambda: state(router) == "down", "down")
        engine.answer = until_closed
        engine.counts = True
        await probed(engine, 4)
        assert state(router) == "down"
