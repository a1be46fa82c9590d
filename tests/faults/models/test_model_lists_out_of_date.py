"""A replica serves other models than in the list that the router has read, or has not read yet.

Lists are read periodically; here this time is longer than any test. They are also read when they
seem to be out of date.
"""

import asyncio
import json
from typing import Any

import pytest

from router.config.model import Queue, Replica
from router.core.errors import Reason
from tests.harness.control import MODELS, Control
from tests.harness.messages import completion, json_response, post_json, request
from tests.harness.reading import Response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, scenario

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
QUEUES = pytest.mark.parametrize("queue", [True, False], ids=["queue", "no queue"])
PATH = "/v1/chat/completions"
# The shipped time between two reads of a list; no test takes that long.
SHIPPED = {"models_interval_s": 30.0}


class Engine(HostileReplica):
    """Answers like vLLM: 404 for a model that it does not serve. Its lists can be delayed."""

    def __init__(self, *models: str) -> None:
        super().__init__(self._answer, Control(models=models, at={MODELS: self._list}))
        self.refused: list[str] = []
        self.lists = 0  # number of requests for its model list
        self.may_list = asyncio.Event()
        self.may_list.set()

    async def _list(self, connection: ReplicaConnection) -> None:
        self.lists += 1
        await self.may_list.wait()
        await connection.send(json_response(self.control.model_list()))

    async def _answer(self, connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            model = json.loads(asked.body)["model"]
            if model in self.control.models:
                await connection.send(completion())
                continue
            self.refused.append(model)
            error = {"message": f"The model `{model}` does not exist.", "code": 404}
            await connection.send(json_response({"error": error}, 404))


def fleet(*engines: HostileReplica, queue: bool = True, **config: Any) -> Any:
    health = {**SHIPPED, **config.pop("health", {})}
    return running(*engines, health=health, queue=Queue(enabled=queue), **config)


def body(model: str, **fields: Any) -> bytes:
    return post_json(PATH, {"model": model, "messages": [], **fields})


async def ask(router: Router, model: str, **fields: Any) -> Response:
    return await router.ask(body(model, **fields))


def models(router: Router, index: int) -> set[str]:
    return set(router.app.replicas()[index]["models"] or ())


@QUEUES
@STREAMED
@scenario
async def test_a_replica_that_restarts_with_another_model(stream: bool, queue: bool) -> None:
    """No request fails: the other replica serves each that this one refuses."""
    stays, changes = Engine("m"), Engine("m")
    quiet = "polls would show the restart"
    async with fleet(stays, changes, queue=queue, quiet_control_plane=quiet) as router:
        changes.control.models = ("other",)
        changes.may_list.clear()
        answers = await asyncio.gather(*[ask(router, "m", stream=stream) for _ in range(40)])
        assert [each.status for each in answers] == [200] * 40
        assert len(changes.refused) > 1
        changes.may_list.set()
        await eventually(lambda: models(router, 1) == {"other"}, "its new list")
        before = len(changes.refused)
        answers = await asyncio.gather(*[ask(router, "m", stream=stream) for _ in range(40)])
        assert [each.status for each in answers] == [200] * 40
        assert len(changes.refused) == before
        assert (await ask(router, "other")).status == 200
        lines = await router.log(81)
        failed = {tried[2] for line in lines for tried in line["tried"][:-1]}
        assert failed == {"model_refused"}


@scenario
async def test_a_restart_that_the_metrics_show() -> None:
    stays, changes = Engine("m"), Engine("m")
    async with fleet(stays, changes, health={"interval_s": 3600.0}) as router:
        replica = router.app.parts.fleet.replicas["r1"]
        await eventually(lambda: replica.reports.signals.started_at is not None, "a poll")
        changes.control.models = ("other",)
        changes.control.started_at += 1000.0
        await eventually(lambda: models(router, 1) == {"other"}, "its new list")
        assert changes.refused == stays.refused == []
        assert (await ask(router, "other")).status == 200


@QUEUES
@scenario
async def test_a_new_adapter_is_served_at_its_first_request(queue: bool) -> None:
    """The request waits for the lists that it has caused to be read."""
    first, second = Engine("m"), Engine("m")
    async with fleet(first, second, queue=queue) as router:
        second.control.models = ("m", "adapter")
        answers = await asyncio.gather(*[ask(router, "adapter") for _ in range(10)])
        assert [each.status for each in answers] == [200] * 10
        assert first.refused == []
        assert first.lists <= 3


@scenario
async def test_the_question_for_a_model_lets_the_lists_be_read() -> None:
    engine = Engine("m")
    async with fleet(engine) as router:
        engine.control.models = ("m", "adapter")
        answer = await router.ask(request("/v1/models/adapter"))
        assert_error(answer, Reason.MODEL_NOT_FOUND)
        await eventually(lambda: models(router, 0) == {"m", "adapter"}, "its new list")
        assert (await router.ask(request("/v1/models/adapter"))).status == 200


@scenario
async def test_invented_names_cause_no_storm() -> None:
    first, second = Engine("m"), Engine("m")
    async with fleet(first, second) as router:
        before = first.lists, second.lists
        for turn in range(4):
            names = [f"invented-{turn}-{n}" for n in range(25)]
            answers = await asyncio.gather(*[ask(router, name) for name in names])
            for answer in answers:
                assert_error(answer, Reason.MODEL_NOT_FOUND)
        # All names were asked for within less than two periods of 5 s.
        assert first.lists - before[0] <= 2 and second.lists - before[1] <= 2
        assert first.refused == second.refused == []
        assert not router.app.parts.context.first_probes


@scenario
async def test_a_replica_that_refuses_its_model_again_and_again() -> None:
    """Its list names the model, so only the answers of the other replica show that it is sick."""
    first, second = Engine("m"), Engine("m")
    async with fleet(first, second, policy="round_robin") as router:
        behave, second.control.models = second.control.models, ()
        listed = second.control.model_list()["data"] = [
            {"id": model, "object": "model", "owned_by": "vllm"} for model in behave
        ]
        second.control.model_list = lambda: {"data": listed}  # type: ignore[method-assign]
        before = second.lists
        for _ in range(60):
            assert (await ask(router, "m")).status == 200
        assert 0 < len(second.refused) < 10  # It is ejected.
        assert second.lists - before <= len(second.refused)


@scenario
async def test_every_replica_refuses_the_model() -> None:
    """The client gets the engine's own answer, after an attempt at each."""
    first, second = Engine("m"), Engine("m")
    async with fleet(first, second, quiet_control_plane="lists must not change") as router:
        first.control.models = second.control.models = ("other",)
        first.may_list.clear()
        second.may_list.clear()
        answer = await ask(router, "m")
        assert answer.status == 404
        assert answer.json()["error"]["message"] == "The model `m` does not exist."
        assert (first.refused, second.refused) == (["m"], ["m"])
        first.may_list.set()
        second.may_list.set()
        await eventually(lambda: models(router, 0) == models(router, 1) == {"other"}, "new lists")
        assert_error(await ask(router, "m"), Reason.MODEL_NOT_FOUND)


@scenario
async def test_a_replica_leaves_while_its_list_is_read() -> None:
    stays, leaves = Engine("m"), Engine("m")
    async with fleet(stays, leaves) as router:
        leaves.may_list.clear()
        client = await router.send(body("adapter"))
        await eventually(lambda: len(router.app.parts.context.first_probes) == 1, "it waits")
        router.change(replicas=(router.at(0),))
        await router.app.reload()
        assert_error(await client.recv_response(), Reason.MODEL_NOT_FOUND)
        leaves.may_list.set()


def served(engine: Engine) -> list[str]:
    return [json.loads(asked.body)["model"] for asked in engine.requests]


@QUEUES
@scenario
async def test_a_replica_that_a_reload_adds_gets_no_request_before_its_list_is_read(
    queue: bool,
) -> None:
    old, new = Engine("a"), Engine("b")
    new.may_list.clear()
    new.start()
    async with fleet(old, queue=queue, health={"interval_s": 0.05}) as router:
        router.replicas.append(new)
        router.change(replicas=(router.at(0), Replica(url=new.url, id="new")))
        await router.app.reload()
        await eventually(lambda: new.lists > 0, "the question for its models")
        assert [(await ask(router, "a")).status for _ in range(6)] == [200] * 6
        waits = asyncio.create_task(ask(router, "b"))
        await eventually(lambda: len(router.app.parts.dispatcher.exchanges) == 1, "the request")
        new.may_list.set()
        assert (await waits).status == 200
        assert [(await ask(router, "a")).status for _ in range(6)] == [200] * 6
        assert (set(served(old)), served(new)) == ({"a"}, ["b"])


@scenario
async def test_a_replica_serves_another_model_after_an_outage() -> None:
    stays, changes = Engine("a"), Engine("b")
    health = {"interval_s": 0.05, "fall": 1}
    async with fleet(stays, changes, queue=False, health=health) as router:
        assert (await ask(router, "b")).status == 200
        changes.control.status = 503
        replica = router.app.parts.fleet.replicas["r1"]
        await eventually(lambda: not replica.health.up, "down")
        assert_error(await ask(router, "b"), Reason.MODEL_RESTARTING)
        changes.may_list.clear()
        changes.control.models, changes.control.status, changes.lists = ("c",), 200, 0
        await eventually(lambda: changes.lists > 0, "the question for its models")
        assert_error(await ask(router, "b"), Reason.MODEL_RESTARTING)
        changes.may_list.set()
        await eventually(lambda: replica.health.up, "up")
        assert (await ask(router, "c")).status == 200
        assert served(changes) == ["b", "c"]
