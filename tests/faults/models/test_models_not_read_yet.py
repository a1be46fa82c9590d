"""A model whose only replica is not up yet, beside a replica of another model that is up.

SDKs repeat a 503 and not a 404, so the client must not be told that the model does not exist.
"""

from typing import Any

import pytest

from router.config.model import ModelRoute, ModelTarget, Queue, Replica, SplitTarget
from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat, request
from tests.harness.ports import free_port
from tests.harness.reading import Response
from tests.harness.replica import HostileReplica
from tests.harness.running import Router, assert_error, running, scenario

QUEUES = pytest.mark.parametrize("queue", [True, False], ids=["queue", "no queue"])


def fleet(*, queue: bool = True, health: dict[str, Any] | None = None, **config: Any) -> Any:
    """A router whose first replica serves `a`; nothing listens yet at the address of the other."""
    return running(
        HostileReplica(json_ok, models=("a",)),
        f"http://127.0.0.1:{free_port()}",
        health={"interval_s": 0.05, **(health or {})},
        queue=Queue(enabled=queue),
        **config,
    )


def assert_comes(response: Response) -> None:
    """The answer tells the client to try again."""
    assert_error(response, Reason.MODEL_RESTARTING, 503)
    assert response.header("retry-after") == "2"


async def ask(router: Router, model: str) -> Response:
    return await router.ask(chat(model=model))


@QUEUES
@scenario
async def test_it_is_unavailable_until_its_replica_lists_it(queue: bool) -> None:
    async with fleet(queue=queue) as router:
        assert (await ask(router, "a")).status == 200
        for _ in range(2):
            assert_comes(await ask(router, "b"))
            assert_comes(await router.ask(request("/v1/models/b")))
        late = HostileReplica(json_ok, models=("b",))
        late.start()
        router.replicas.append(late)
        router.change(replicas=(router.at(0), Replica(url=late.url, id="late")))
        await router.app.reload()
        assert (await ask(router, "b")).status == 200
        assert_error(await ask(router, "c"), Reason.MODEL_NOT_FOUND)


@scenario
async def test_an_alias_of_it_and_a_pool_that_is_not_up() -> None:
    models = {
        "alias": ModelRoute(targets=(SplitTarget(model="b"),)),
        "canary": ModelRoute(targets=(SplitTarget(model="a", pool="later"),)),
        "safe": ModelRoute(targets=(SplitTarget(model="b"),), fallbacks=(ModelTarget(model="a"),)),
    }
    async with fleet(models=models, pools={"later": {}}) as router:
        assert_comes(await ask(router, "alias"))
        assert (await ask(router, "canary")).status == 503
        assert (await ask(router, "safe")).status == 200, "its fallback serves it"


@scenario
async def test_the_time_is_bounded() -> None:
    """A replica that never comes up must not hide wrong names for ever."""
    async with fleet(health={"models_wait_s": 0.3}) as router:
        found: list[int] = []
        while not found or found[-1] != 404:
            found.append((await ask(router, "b")).status)
        assert set(found) <= {503, 404}
        assert_error(await ask(router, "b"), Reason.MODEL_NOT_FOUND)


@scenario
async def test_a_replica_that_is_removed_or_has_configured_models() -> None:
    async with fleet() as router:
        assert_comes(await ask(router, "b"))
        router.change(replicas=(router.at(0), router.at(1, models=("x",))))
        await router.app.reload()
        assert_error(await ask(router, "b"), Reason.MODEL_NOT_FOUND)
        assert (await ask(router, "x")).status == 503
        router.change(replicas=(router.at(0), router.at(1)))
        await router.app.reload()
        assert_comes(await ask(router, "b"))
        router.change(replicas=(router.at(0),))
        await router.app.reload()
        assert_error(await ask(router, "b"), Reason.MODEL_NOT_FOUND)
