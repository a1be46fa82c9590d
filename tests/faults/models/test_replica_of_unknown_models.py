"""A replica with unknown models gets no request: an engine answers 404 for a foreign model.

Such a replica is new in the fleet, slow to list its models, or has no list; or it returns from an
outage, after which it may serve another model.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from router.config.model import Queue, Replica
from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.control import MODELS, Control
from tests.harness.messages import json_response, post_json, response
from tests.harness.reading import Response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, scenario

PATH = "/v1/chat/completions"
QUEUES = pytest.mark.parametrize("queue", [True, False], ids=["queue", "no queue"])


class Engine(HostileReplica):
    """An engine that lists its models once `lists` is set; with `no_list` it has no model list."""

    def __init__(self, *models: str, lists: bool = True, no_list: bool = False) -> None:
        super().__init__(json_ok, Control(models=models, at={MODELS: self._answer_list}))
        self.no_list = no_list
        self.lists = asyncio.Event()
        self.asked = 0  # number of requests for its model list
        if lists:
            self.lists.set()

    async def _answer_list(self, connection: ReplicaConnection) -> None:
        self.asked += 1
        await self.lists.wait()
        if self.no_list:
            await connection.send(response(404))
        else:
            await connection.send(json_response(self.control.model_list()))

    @property
    def served(self) -> list[str]:
        return [str(msgspec.json.decode(request.body)["model"]) for request in self.requests]


def ask(router: Router, model: str) -> asyncio.Task[Response]:
    return asyncio.create_task(router.ask(post_json(PATH, {"model": model, "messages": []})))


async def add(router: Router, *engines: Engine) -> None:
    """Reload with these replicas added."""
    for engine in engines:
        if not engine.port:
            engine.start()
        router.replicas.append(engine)
    more = tuple(Replica(url=e.url, id=f"added-{e.port}") for e in engines)
    router.change(replicas=(*router.config.replicas, *more))
    await router.app.reload()


def fleet(*engines: Engine | str, queue: bool = True, **fields: Any) -> Any:
    return running(
        *engines,
        health={"interval_s": 0.05, **fields},
        queue=Queue(enabled=queue),
    )


@QUEUES
@scenario
async def test_added_by_a_reload(queue: bool) -> None:
    old, new = Engine("a"), Engine("b", lists=False)
    async with fleet(old, queue=queue) as router:
        await add(router, new)
        await eventually(lambda: new.asked > 0, "the question for its models")
        assert [(await ask(router, "a")).status for _ in range(6)] == [200] * 6
        waits = ask(router, "b")
        await eventually(lambda: len(router.app.parts.dispatcher.exchanges) == 1, "the request")
        new.lists.set()
        assert (await waits).status == 200
        assert [(await ask(router, "a")).status for _ in range(6)] == [200] * 6
        assert set(old.served) == {"a"}
        assert new.served == ["b"]


@scenario
async def test_back_from_an_outage_it_serves_another_model() -> None:
    stays, changes = Engine("a"), Engine("b")
    async with fleet(stays, changes, fall=1, queue=False) as router:
        assert (await ask(router, "b")).status == 200
        changes.control.status = 503
        replica = router.app.parts.fleet.replicas["r1"]
        await eventually(lambda: not replica.health.up, "down")
        assert_error(await ask(router, "b"), Reason.MODEL_RESTARTING)
        changes.lists.clear()
        changes.control.models, changes.control.status, changes.asked = ("c",), 200, 0
        await eventually(lambda: changes.asked > 0, "the question for its models")
        assert_error(await ask(router, "b"), Reason.MODEL_RESTARTING)
        changes.lists.set()
        await eventually(lambda: replica.health.up, "up")
        assert (await ask(router, "c")).status == 200
        assert changes.served == ["b", "c"]
