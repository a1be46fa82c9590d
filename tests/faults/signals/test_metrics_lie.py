"""An engine that reports no load while it holds our requests: the router's own count is used."""

import asyncio

from tests.harness.control import METRICS, Control
from tests.harness.messages import chat, completion, response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import running, virtual_scenario

IDLE = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n"


class Liar:
    """Holds every request until a signal, and reports that it is idle."""

    def __init__(self, said: bytes = IDLE) -> None:
        self.said = said
        self.polls = 0
        self.go = asyncio.Event()

    def replica(self) -> HostileReplica:
        return HostileReplica(self.behave, Control(at={METRICS: self.polled}))

    async def polled(self, connection: ReplicaConnection) -> None:
        self.polls += 1
        await connection.send(response(200, body=self.said))

    async def behave(self, connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await self.go.wait()
            await connection.send(completion())


POLLED = {"polling": {"interval_s": 0.02}}


@virtual_scenario
async def test_our_own_requests_are_load_whatever_it_says() -> None:
    liar = Liar()
    async with running(liar.replica(), **POLLED) as router:
        (replica,) = router.app.parts.fleet.replicas.values()
        asking = [asyncio.ensure_future(router.ask(chat(stream=n < 3))) for n in range(5)]
        await eventually(lambda: replica.inflight == 5, "five requests there")
        seen = liar.polls
        await eventually(lambda: liar.polls > seen + 3, "more polls")
        assert replica.load == 5
        assert replica.waiting >= 3  # the streams; the engine's gauges count whole answers
        liar.go.set()
        await asyncio.gather(*asking)
        await eventually(lambda: replica.load == replica.waiting == 0, "all of it gone")


@virtual_scenario
async def test_what_others_send_there_is_load_too() -> None:
    liar = Liar(b"vllm:num_requests_running 4\nvllm:num_requests_waiting 3\n")
    async with running(liar.replica(), **POLLED) as router:
        (replica,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: (replica.load, replica.waiting) == (7, 3), "the others' load")
        liar.said = IDLE
        await eventually(lambda: (replica.load, replica.waiting) == (0, 0), "none of it")


@virtual_scenario
async def test_a_figure_that_turns_to_nonsense_is_unknown_and_never_stops_requests() -> None:
    liar = Liar(b"vllm:num_requests_running 1\nvllm:kv_cache_usage_perc 0.5\n")
    liar.go.set()
    async with running(liar.replica(), **POLLED) as router:
        (replica,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: replica.kv_usage == 0.5, "a figure")
        for said in (b"NaN", b"+Inf", b"-1", b"42", b"x", b"", b"1e999"):
            liar.said = b"vllm:num_requests_running 1\nvllm:kv_cache_usage_perc %b\n" % said
            await eventually(lambda: replica.kv_usage is None, "unknown")
            assert (await router.ask(chat())).status == 200
            liar.said = b"vllm:num_requests_running 1\nvllm:kv_cache_usage_perc 0.5\n"
            await eventually(lambda: replica.kv_usage == 0.5, "a figure")


@virtual_scenario
async def test_with_stale_metrics_own_counts_are_used_and_gates_are_open() -> None:
    liar = Liar(b"vllm:num_requests_running 9\nvllm:kv_cache_usage_perc 0.5\n")
    liar.go.set()
    polling = {"interval_s": 0.02, "stale_s": 0.1}
    async with running(liar.replica(), polling=polling, replica={"engine": "vllm"}) as router:
        (replica,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: replica.load == 9, "signals")
        liar.said = b""
        await eventually(lambda: replica.load == 0, "signals too old")
        assert replica.kv_usage is None
        assert (await router.ask(chat())).status == 200
