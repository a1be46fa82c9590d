"""GET /health on the data port, for load balancers: open, 503 while another router should serve."""

import asyncio
from pathlib import Path

import pytest

from router.config.model import Keys
from router.core.errors import Reason
from tests.app.test_keys_at_the_door import acme, file_of
from tests.harness.behaviours import json_ok
from tests.harness.control import HEALTH
from tests.harness.messages import chat, request, response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import assert_error, running, scenario


async def says_500(connection: ReplicaConnection) -> None:
    await connection.send(response(500))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@scenario
async def test_it_needs_no_key_and_reaches_no_replica(method: str, tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme()), required=True)
    async with running(json_ok, keys=keys) as router:
        for field in ((), ("Authorization: Bearer wrong",)):
            answer = await router.ask(request("/health", *field, method=method), method)
            assert (answer.status, answer.body) == (200, b"")
        assert_error(await router.ask(), Reason.KEY_REQUIRED)
        posted = request("/health", method="POST", body=b"{}")
        assert_error(await router.ask(posted), Reason.KEY_REQUIRED)
        assert router.replica.requests == []


@scenario
async def test_it_is_503_while_no_replica_is_up() -> None:
    replica = HostileReplica(json_ok)
    async with running(replica, ready="when_any_replica") as router:
        replica.control.at[HEALTH] = says_500
        ready = router.app.parts.fleet.serving
        await eventually(lambda: not ready.ready, "the replica is down")
        answer = await router.ask(request("/health"))
        assert_error(answer, Reason.NO_REPLICA)
        assert answer.header("retry-after") is not None
        assert (await router.ask(request("/health", method="HEAD"), "HEAD")).status == 503
        del replica.control.at[HEALTH]
        await eventually(lambda: bool(ready.ready), "the replica is up")
        assert (await router.ask(request("/health"))).status == 200


@scenario
async def test_it_is_503_while_the_router_drains_and_still_serves() -> None:
    async with running(json_ok, drain={"lame_duck_s": 30.0}) as router:
        router.app.drain()
        await asyncio.sleep(0)
        answer = await router.ask(request("/health"))
        assert_error(answer, Reason.DRAINING)
        assert answer.header("connection") == "close"
        assert (await router.ask(chat())).status == 200


@scenario
async def test_the_admin_port_has_the_names_of_engines_and_kubernetes() -> None:
    replica = HostileReplica(json_ok)
    async with running(replica) as router:
        for path in ("/health", "/healthz"):
            assert (await router.admin(path)).status == 200
        router.app.drain()
        answers = {path: await router.admin(path) for path in ("/health", "/healthz")}
        assert (answers["/health"].status, answers["/health"].body) == (503, b"draining\n")
        assert answers["/healthz"].status == 200
