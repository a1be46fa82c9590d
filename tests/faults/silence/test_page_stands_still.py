"""An idle engine whose page of metrics shows load that is not there, and never changes.

An engine writes its gauges in its steps. If all of its clients disconnect at once, or if it stands
still, the page keeps the last values. A replica with such a page must get requests again. An engine
whose totals grow is busy, whatever it serves.
"""

import asyncio
from collections.abc import Callable

import pytest

from tests.harness.behaviours import chat_either
from tests.harness.control import METRICS, Control
from tests.harness.messages import SSE_HEAD, chat, chunk, response, token
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, virtual_scenario


def vllm(running: int, waiting: int, kv: float, total: int) -> str:
    return (
        "process_start_time_seconds 1000.5\n"
        f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
        f"vllm:kv_cache_usage_perc {kv}\n"
        f"vllm:prompt_tokens_total {total}\nvllm:generation_tokens_total {total}\n"
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="31250"} 1.0\n'
    )


def sglang(running: int, waiting: int, kv: float, total: int) -> str:
    return (
        f"sglang:num_running_reqs {running}\nsglang:num_queue_reqs {waiting}\n"
        f"sglang:token_usage {kv}\nsglang:max_total_num_tokens 400000\n"
        f"sglang:prompt_tokens_total {total}\nsglang:generation_tokens_total {total}\n"
    )


def without_totals(running: int, waiting: int, kv: float, total: int) -> str:
    return "\n".join(x for x in vllm(running, waiting, kv, total).split("\n") if "total" not in x)


class Engine:
    """An engine whose page shows other clients' load."""

    def __init__(
        self, write: Callable[[int, int, float, int], str], running: int, waiting: int, kv: float
    ) -> None:
        self.write = write
        self.running, self.waiting, self.kv = running, waiting, kv
        self.total = 5000
        self.works = False  # whether its totals grow from poll to poll
        self.polls = 0

    async def page(self, connection: ReplicaConnection) -> None:
        self.polls += 1
        self.total += 100 * self.works
        text = self.write(self.running, self.waiting, self.kv, self.total)
        await connection.send(response(body=text.encode(), content_type="text/plain"))

    def replica(self) -> HostileReplica:
        owner = "sglang" if self.write is sglang else "vllm"
        return HostileReplica(chat_either, Control(at={METRICS: self.page}, owned_by=owner))


async def polled(engine: Engine, router: Router, count: int) -> None:
    seen = engine.polls
    await eventually(lambda: engine.polls > seen + count, f"{count} polls")


@pytest.mark.parametrize("urgency", ["critical", "normal", "low", "batch"])
@pytest.mark.parametrize("write", [vllm, sglang, without_totals])
@pytest.mark.parametrize(
    ("load", "waiting", "kv"), [(106, 15, 0.904), (4, 0, 0.96), (4, 0, 1.0), (0, 0, 1.0)]
)
@virtual_scenario
async def test_it_gets_requests_again(
    write: Callable[[int, int, float, int], str], load: int, waiting: int, kv: float, urgency: str
) -> None:
    engine = Engine(write, load, waiting, kv)
    async with running(engine.replica()) as router:
        await polled(engine, router, 2)
        for _ in range(3):
            asks = [router.ask(chat(priority=urgency, stream=n % 2 > 0)) for n in range(2)]
            assert [answer.status for answer in await asyncio.gather(*asks)] == [200, 200]


@virtual_scenario
async def test_streams_that_their_clients_have_cut_block_nothing() -> None:
    """The engine stops to compute, so nothing changes its page any more."""
    engine = Engine(vllm, 0, 0, 0.0)

    async def streams(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if b'"stream": true' not in bytes(request.body):
                await connection.send(response(body=b'{"choices": []}'))
                continue
            engine.running += 1
            engine.total += 10
            await connection.send(SSE_HEAD, chunk(token()))

    replica = engine.replica()
    replica.behave = streams
    async with running(replica) as router:
        clients = [await router.client() for _ in range(20)]
        for client in clients:
            await client.send(chat(stream=True))
            await client.recv_until(b'"token"')
        engine.kv = 0.97
        await polled(engine, router, 2)
        for client in clients:
            client.rst()
        assert (await router.ask(chat(priority="low"))).status == 200


@pytest.mark.parametrize("write", [vllm, sglang])
@virtual_scenario
async def test_an_engine_that_works_for_others_stays_respected(
    write: Callable[[int, int, float, int], str],
) -> None:
    engine = Engine(write, 106, 15, 0.904)
    engine.works = True
    async with running(engine.replica()) as router:
        (replica,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: replica.foreign_load == 121, "the load of others")
        asked = asyncio.ensure_future(router.ask(chat(priority="low")))
        for _ in range(10):  # several times the seconds after which a page stands still
            await polled(engine, router, 3)
            assert (replica.foreign_load, replica.kv_polled) == (121, 0.904)
            assert not [one for one in router.replica.requests if one.method == "POST"]
        engine.running, engine.waiting, engine.kv = 1, 0, 0.1
        assert (await asked).status == 200


@virtual_scenario
async def test_a_page_that_moves_again_is_believed_again() -> None:
    engine = Engine(vllm, 106, 15, 0.904)
    async with running(engine.replica()) as router:
        (replica,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: replica.foreign_load == 121, "the load of others")
        await eventually(lambda: replica.foreign_load == 0, "the page stands still")
        assert replica.kv_usage is None
        engine.works = True
        await eventually(lambda: replica.foreign_load == 121, "the load of others")
        assert replica.kv_usage == 0.904
        engine.works = False
        await eventually(lambda: replica.foreign_load == 0, "the page stands still")


@virtual_scenario
async def test_a_page_that_stands_still_while_streams_flow_shows_no_load() -> None:
    engine = Engine(vllm, 106, 15, 0.904)

    async def endless(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD)
            while connection.ended is None and connection.sock.fileno() >= 0:
                await connection.send(chunk(token()))
                await asyncio.sleep(0.02)

    replica = engine.replica()
    replica.behave = endless
    async with running(replica) as router:
        client = await router.send(chat(stream=True, priority="critical"))
        await client.recv_until(b'"token"')
        (own,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: own.foreign_load == 0 and own.kv_usage is None, "not believed")
        client.rst()
