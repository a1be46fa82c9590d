"""A removed model does not exist; a model whose replicas are down comes back."""

import asyncio
from dataclasses import dataclass

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.queueing import ONE, Turnstile, dropped, of_each, queue, send, waiting
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, assert_error, running, scenario

FAST = {"interval_s": 0.05, "models_interval_s": 0.05, "fall": 1, "timeout_s": 0.5}


@dataclass
class Answer:
    status: int
    code: str


def body(model: str) -> bytes:
    return chat(model=model)


async def ask(router: Router, model: str) -> Answer:
    found = await router.ask(body(model))
    return Answer(found.status, "" if found.status == 200 else str(found.error()["code"]))


GONE = Answer(404, "model_not_found")
AWAY = 503  # status while the model is away, whether the request has waited or not


async def until(router: Router, model: str, wanted: Answer) -> None:
    """Send requests until the answer is the wanted one."""
    for _ in range(200):
        found = await ask(router, model)
        if found == wanted:
            return
        await asyncio.sleep(0.02)  # a replica that is down is asked less and less often
    raise AssertionError(f"{model}: {found}, never {wanted}")


async def down(router: Router, first: HostileReplica) -> None:
    """The first replica stops answering its probes."""
    first.control.status = 500
    await eventually(lambda: router.app.replicas()[0]["state"] == "down", "down")


@scenario
async def test_a_model_that_no_replica_lists_any_more() -> None:
    first = HostileReplica(json_ok, models=("m", "old"))
    second = HostileReplica(json_ok, models=("m", "old"))
    async with running(first, second, health=FAST) as router:
        assert (await ask(router, "old")).status == 200
        first.control.models = ("m",)
        await eventually(
            lambda: "old" not in (router.app.replicas()[0]["models"] or ()), "it lists one"
        )
        assert (await ask(router, "old")).status == 200  # the other replica serves the model
        second.control.models = ("m",)
        await until(router, "old", GONE)
        assert (await ask(router, "m")).status == 200


@scenario
async def test_a_model_whose_replica_is_away_and_comes_back_without_it() -> None:
    first = HostileReplica(json_ok, models=("a",))
    second = HostileReplica(json_ok, models=("b",))
    async with running(first, second, health=FAST) as router:
        assert (await ask(router, "a")).status == 200
        await down(router, first)
        for _ in range(3):
            assert (await ask(router, "a")).status == AWAY
        first.control.status = 200
        await until(router, "a", Answer(200, ""))
        await down(router, first)
        assert (await ask(router, "a")).status == AWAY
        first.control.models = ("b",)
        first.control.status = 200
        await until(router, "a", GONE)
        assert (await ask(router, "b")).status == 200


PATIENT = of_each(absent_s=3600.0)  # only the removal of the model ends a wait


@scenario
async def test_requests_that_wait_for_a_model_that_no_replica_lists_any_more() -> None:
    turnstile = Turnstile()
    replica = HostileReplica(turnstile, models=("m", "old"))
    async with running(replica, health=FAST, replica=ONE, queue=queue(), classes=PATIENT) as router:
        first = await send(router, "first", queued=False)
        old = [await send(router, f"old {n}", model="old") for n in range(3)]
        other = await send(router, "other")
        replica.control.models = ("m",)
        for client in old:
            assert_error(await client.recv_response(), Reason.MODEL_NOT_FOUND, 404)
        assert waiting(router) == 1
        assert dropped(router) == {("model_not_found", 2): 3}
        turnstile.open(2)
        for client in (first, other):
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == ["first", "other"]
