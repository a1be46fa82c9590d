"""A replica that accepts requests and generates nothing is ejected for whole answers, too.

A response that is not streamed shows nothing before it ends. But the engine's totals stand still in
all polls while requests are there, and grow if the engine works on a long answer.
"""

import asyncio
import re

import pytest

from tests.faults.replicas.test_replica_hangs_and_answers_probes import breaker, told
from tests.harness.behaviours import until_closed
from tests.harness.control import METRICS, Control, anonymous
from tests.harness.messages import chat, completion, json_response, post_json, response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, virtual_scenario

WHY = re.compile(r"no answer for \d+\.\d s, and no sign of work for \d+\.\d s; request .+")
EMBEDDINGS = json_response({"object": "list", "data": [{"embedding": [0.5], "index": 0}]})
HEALTH = {"eject_base_s": 3600.0, "slow_start_s": 0.0}
ROUTES = {
    "chat": chat(),
    "completions": post_json("/v1/completions", {"model": "m", "prompt": "hello"}),
    "responses": post_json("/v1/responses", {"model": "m", "input": "hello"}),
    "embeddings": post_json("/v1/embeddings", {"model": "m", "input": "hello"}),
    "rerank": post_json("/v1/rerank", {"model": "m", "query": "q", "documents": ["d"]}),
    "classify": post_json("/classify", {"model": "m", "input": "hello"}),
}


class Engine:
    """An engine with whole answers only, which can be made to hang or to need long for one."""

    def __init__(self) -> None:
        self.hangs = False
        self.counts = False  # whether its totals grow from poll to poll
        self.go = asyncio.Event()
        self.total = 100
        self.polls = 0
        self.asked = 0

    def replica(self, control: Control | None = None) -> HostileReplica:
        return HostileReplica(self.answer, control or Control(at={METRICS: self.page}))

    async def answer(self, connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            self.asked += 1
            if self.hangs:
                await until_closed(connection)
                return
            await self.go.wait()
            self.total += 10
            is_vector = b"embeddings" in request.target.encode()
            await connection.send(EMBEDDINGS if is_vector else completion())

    async def page(self, connection: ReplicaConnection) -> None:
        self.polls += 1
        self.total += self.counts
        text = (
            "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
            f"vllm:prompt_tokens_total {self.total}\nvllm:generation_tokens_total {self.total}\n"
        )
        await connection.send(response(body=text.encode(), content_type="text/plain"))


def fast() -> Engine:
    engine = Engine()
    engine.go.set()
    return engine


@pytest.mark.parametrize("route", list(ROUTES))
@virtual_scenario
async def test_it_is_ejected(route: str, caplog: pytest.LogCaptureFixture) -> None:
    zombie, other = fast(), fast()
    replicas = (zombie.replica(), other.replica())
    async with running(*replicas, policy="round_robin", health=HEALTH) as router:
        while not (zombie.asked and other.asked):
            assert (await router.ask(ROUTES[route])).status == 200
        zombie.hangs = True
        clients = [await router.send(ROUTES[route]) for _ in range(8)]
        await eventually(lambda: breaker(router) == "open", "ejected")
        for message in ("replica suspect", "replica ejected"):
            (why,) = told(caplog, message)
            assert WHY.fullmatch(why), why
        assert (await router.ask(ROUTES[route])).status == 200
        for client in clients:
            client.rst()


@virtual_scenario
async def test_it_is_ejected_by_an_answer_that_no_answer_came_before() -> None:
    """No usual time is known, as after a start of the router in front of a hanging engine."""
    zombie, other = fast(), fast()
    zombie.hangs = True
    health = {**HEALTH, "suspect_min_s": 0.5, "suspect_factor": 2.0}
    replicas = (zombie.replica(), other.replica())
    async with running(*replicas, policy="round_robin", health=health) as router:
        answers = await asyncio.gather(*(router.ask() for _ in range(8)))
        assert [answer.status for answer in answers] == [200] * 8
        assert breaker(router) == "open"


async def works_long(router: Router, engine: Engine, control: bool = True) -> None:
    """Send a whole request that takes several times as long as the replica may be silent."""
    asks = [asyncio.ensure_future(router.ask()) for _ in range(4)]
    await eventually(lambda: engine.asked >= 2, "they are there")
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < began + 4.0:
        assert breaker(router) == "closed"
        await asyncio.sleep(0.1)
    engine.go.set()
    assert [(await ask).status for ask in asks] == [200] * 4
    assert [line["attempts"] for line in await router.log(4)] == [1] * 4


@virtual_scenario
async def test_a_long_answer_of_a_working_engine_does_not_count() -> None:
    slow, other = Engine(), fast()
    slow.counts = True
    health = {**HEALTH, "suspect_factor": 1.0}
    async with running(slow.replica(), other.replica(), policy="round_robin", health=health) as r:
        await works_long(r, slow)


@virtual_scenario
async def test_a_long_answer_of_an_engine_without_totals_does_not_count() -> None:
    slow, other = Engine(), fast()
    health = {**HEALTH, "suspect_factor": 1.0}
    control = anonymous()
    async with running(
        slow.replica(control), other.replica(), policy="round_robin", health=health
    ) as router:
        await works_long(router, slow)


@virtual_scenario
async def test_totals_that_never_count_show_nothing() -> None:
    """The engine has answered whole requests, and its totals are still 0."""
    engine, other = fast(), fast()

    async def page(connection: ReplicaConnection) -> None:
        engine.total = 0
        await engine.page(connection)

    replicas = (engine.replica(Control(at={METRICS: page})), other.replica())
    health = {**HEALTH, "suspect_factor": 1.0}
    async with running(*replicas, policy="round_robin", health=health) as router:
        while not engine.asked:
            assert (await router.ask()).status == 200
        engine.go.clear()
        engine.asked = 0
        asks = [asyncio.ensure_future(router.ask()) for _ in range(4)]
        await eventually(lambda: engine.asked >= 2, "they are there")
        seen = engine.polls
        await eventually(lambda: engine.polls > seen + 15, "polls")
        assert breaker(router) == "closed"
        engine.go.set()
        assert [(await ask).status for ask in asks] == [200] * 4
