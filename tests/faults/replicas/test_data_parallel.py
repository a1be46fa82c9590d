"""Engines with several data-parallel ranks behind one port."""

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from router.config.model import Replica
from router.core.errors import Reason
from router.lab.emulator.http.faults import NONE, Faults
from tests.harness.control import METRICS
from tests.harness.emulated import Emulated, emulated
from tests.harness.messages import chat, completion
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, scenario

PERSONAS = pytest.mark.parametrize("persona", ["vllm", "sglang"])


def asked(engine: Emulated) -> list[int]:
    """The number of requests at each rank."""
    return [rank.stats.asked for rank in engine.ranks]


async def ask(router: Router, words: str = "hello", **fields: Any) -> int:
    body = {"messages": [{"role": "user", "content": words}], "max_tokens": 4, **fields}
    answer = await router.ask(chat(**body))
    return answer.status


async def share(engine: Emulated, requests: list[Coroutine[Any, Any, int]]) -> list[int]:
    """The number of requests at each rank after these first ones; none of them ends before the last
    one has arrived."""
    for rank in engine.ranks:
        rank.set_faults(Faults(freeze=True))
    answers = asyncio.gather(*requests)
    await eventually(lambda: sum(asked(engine)) == len(requests), "all requests")
    for rank in engine.ranks:
        rank.set_faults(NONE)
    assert await answers == [200] * len(requests)
    return asked(engine)


def ranks(router: Router) -> list[str]:
    return sorted(router.app.parts.fleet.replicas)


@PERSONAS
@pytest.mark.parametrize("metrics", [True, False])
@scenario
async def test_ranks_are_found_and_share_the_requests(persona: str, metrics: bool) -> None:
    if persona == "vllm" and not metrics:
        pytest.skip("vLLM always has metrics")
    async with (
        emulated(persona, data_parallel_size=3, metrics=metrics) as engine,
        running(engine.url) as router,
    ):
        await eventually(lambda: ranks(router) == ["r0", "r0@1", "r0@2"], "the ranks")
        assert await share(engine, [ask(router) for _ in range(12)]) == [4, 4, 4]


@scenario
async def test_a_client_cannot_choose_the_rank() -> None:
    async with (
        emulated("vllm", data_parallel_size=2) as engine,
        running(engine.url, replica={"data_parallel_ranks": 1}) as router,
    ):
        for _ in range(2):
            answer = await router.ask(chat("x-data-parallel-rank: 1"))
            assert answer.status == 200
        assert asked(engine) == [2, 0], "the engine has chosen the rank"
        await asyncio.sleep(0.2)
        assert ranks(router) == ["r0"]


@scenario
async def test_a_reload_changes_the_number_of_ranks() -> None:
    async with (
        emulated("vllm", data_parallel_size=2) as engine,
        running(replicas=(Replica(url=engine.url, id="a", data_parallel_ranks=1),)) as router,
    ):
        assert ranks(router) == ["a"]
        router.change(replicas=(router.at(0, data_parallel_ranks=2),))
        await router.app.reload()
        assert ranks(router) == ["a", "a@1"]
        assert await share(engine, [ask(router) for _ in range(8)]) == [4, 4]
        router.change(replicas=(router.at(0, data_parallel_ranks=None, weight=2.0),))
        await router.app.reload()
        await asyncio.sleep(0.2)
        assert ranks(router) == ["a", "a@1"], "the metrics show them"
        weights = {r.id: r.weight for r in router.app.parts.fleet.replicas.values()}
        assert weights == {"a": 2.0, "a@1": 2.0}
        router.change(replicas=())
        router.change(replicas=(Replica(url=engine.url, id="b"),))
        await router.app.reload()
        assert ranks(router)[0] == "b" and "a@1" not in ranks(router)
        assert await ask(router) == 200


@scenario
async def test_the_admin_api_drains_all_ranks_together() -> None:
    async with (
        emulated("vllm", data_parallel_size=2) as engine,
        running(engine.url) as router,
    ):
        await eventually(lambda: len(ranks(router)) == 2, "the ranks")
        for path, method in (("/replicas/r0@1/drain", "POST"), ("/replicas/r0@1", "DELETE")):
            refused = await router.admin(path, method)
            assert refused.status == 409
            assert json.loads(refused.body)["error"]["code"] == "is_a_rank"
        assert (await router.admin("/replicas/r0/drain", "POST")).status == 200
        assert_error(await router.ask(chat()), Reason.NO_REPLICA)
        assert (await router.admin("/replicas/r0/uncordon", "POST")).status == 200
        assert await ask(router) == 200
        assert (await router.admin("/replicas/r0", "DELETE")).status == 202
        assert ranks(router) == []


@scenario
async def test_an_address_that_is_down_takes_no_rank_of_its_requests() -> None:
    async with emulated("vllm") as other, AsyncExitStack() as stack:
        engine = await stack.enter_async_context(emulated("vllm", data_parallel_size=3))
        async with running(engine.url, other.url) as router:
            await eventually(lambda: len(ranks(router)) == 4, "the ranks")
            await stack.aclose()
            for _ in range(4):
                assert await ask(router) == 200
            fleet = router.app.parts.fleet
            await eventually(
                lambda: [r.id for r in fleet.serving.ready] == ["r1"], "all ranks down"
            )
            assert sum(asked(other)) == 4


class Node(HostileReplica):
    """One of several nodes of an engine: it has the ranks from `first` on, as its metrics show."""

    def __init__(self, first: int, count: int) -> None:
        super().__init__(self._answer)
        self.numbers = range(first, first + count)
        self.asked: list[str | None] = []  # the rank of each request, in the header
        self.server = b""  # the header lines that name the front end
        self.control.at[METRICS] = self._metrics

    async def _metrics(self, connection: ReplicaConnection) -> None:
        load = self.load
        lines = [f"process_start_time_seconds {self.control.started_at}"]
        for rank in self.numbers:
            labels = f'engine="{rank}",model_name="m"'
            lines += [
                f"vllm:num_requests_running{{{labels}}} 0",
                f"vllm:num_requests_waiting{{{labels}}} 0",
                f'vllm:engine_sleep_state{{{labels},sleep_state="awake"}} 1.0',
                f"vllm:prompt_tokens_total{{{labels}}} {load.prompt_tokens}",
                f"vllm:generation_tokens_total{{{labels}}} {load.generated}",
            ]
        page = "\n".join([*lines, ""]).encode()
        head = b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n" % (self.server, len(page))
        await connection.send(head, page)

    async def _answer(self, connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            self.asked.append(request.header("x-data-parallel-rank"))
            await connection.send(completion())


@scenario
async def test_a_front_end_that_counts_its_own_ranks_from_0() -> None:
    """vLLM's Python front end refuses the number 4 if it has the ranks 4 to 7."""
    node = Node(4, 4)
    node.server = b"Server: uvicorn\r\n"
    async with running(node, policy="round_robin") as router:
        await eventually(lambda: ranks(router) == ["r0", "r0@5", "r0@6", "r0@7"], "the ranks")
        for _ in range(8):
            assert await ask(router) == 200
        assert Counter(node.asked) == {str(rank): 2 for rank in range(4)}
        node.server = b""  # The front end in Rust uses the numbers of the engine.
        lines = [b"\r\nx-data-parallel-rank: %d" % rank for rank in range(4, 8)]
        fleet = router.app.parts.fleet.replicas
        await eventually(lambda: [r.rank_line for r in fleet.values()] == lines, "the new front")
        shown = [each["data_parallel_rank"] for each in router.app.replicas()]
        assert shown == [4, 5, 6, 7]
