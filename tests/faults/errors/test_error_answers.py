"""Error answers for which the request, and not the replica, is at fault; and what clients get."""

import json
from typing import Any

import pytest

from router.config.model import Credential, Replica, Upstream
from router.core.errors import Reason
from tests.harness.behaviours import answer_by, json_ok
from tests.harness.messages import chat, completion, json_response
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection
from tests.harness.running import Router, assert_error, running, virtual_scenario

ERROR = {"error": {"message": "no", "type": "error", "param": None, "code": "no"}}


def bad(number: int, *fields: str) -> bytes:
    return chat(*fields, user=f"bad {number}")


def good(number: int, *fields: str) -> bytes:
    return chat(*fields, user=f"good {number}")


def refuses_bad(status: int, word: bytes = b"bad") -> Behaviour:
    """A replica that refuses bad requests, whichever client sends them."""
    error = json_response(ERROR, status)
    return answer_by(lambda asked: error if word in asked.body else completion())


def states(router: Router) -> list[Any]:
    return [(each["state"], each["ejections"]) for each in router.app.replicas()]


def sent(router: Router) -> int:
    return sum(len(replica.requests) for replica in router.replicas)


@pytest.mark.parametrize("status", [400, 401, 404, 422])
@pytest.mark.parametrize("share", [1, 4])
@virtual_scenario
async def test_one_client_with_bad_requests_ejects_no_replica(status: int, share: int) -> None:
    """The client's session binds all its requests to one replica."""
    behave = refuses_bad(status)
    async with running(*[behave] * 3, policy="session") as router:
        count = 60
        for number in range(count):
            answer = await router.ask(bad(number, "X-Session-Id: one"))
            assert (answer.status, answer.json()) == (status, ERROR)
            if number % share == 0:
                assert (await router.ask(good(number))).status == 200
        assert states(router) == [("ready", 0)] * 3
        assert sent(router) - count - count // share <= count / 4 + 10


@pytest.mark.parametrize("status", [401, 404, 500])
@virtual_scenario
async def test_the_only_replica_stays(status: int) -> None:
    async with running(refuses_bad(status)) as router:
        for number in range(12):
            answer = await router.ask(bad(number))
            assert (answer.status, answer.json()) == (status, ERROR)
        assert states(router) == [("ready", 0)]
        assert sent(router) == 12
        assert (await router.ask(good(1))).status == 200


@virtual_scenario
async def test_a_model_that_one_replica_lacks() -> None:
    """The replica still serves the fleet's other requests; no client gets its 404."""
    async with running(refuses_bad(404, b"lost"), json_ok, policy="round_robin") as router:
        for number in range(20):
            assert (await router.ask(chat(user=f"lost {number}"))).status == 200
            assert (await router.ask(good(number))).status == 200


@virtual_scenario
async def test_the_client_gets_the_first_error_if_the_other_replica_fails() -> None:
    async def resets(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        connection.rst()

    first = HostileReplica(refuses_bad(401))
    async with running(first, resets, policy="round_robin") as router:
        answer = await router.ask(bad(1))
        while not first.requests:
            answer = await router.ask(bad(1))
        assert (answer.status, answer.json()) == (401, ERROR)


@virtual_scenario
async def test_without_retries_a_replica_that_gives_errors_is_avoided() -> None:
    """Without a comparison nothing is known, but the replica gets less than its share."""

    sick = HostileReplica(refuses_bad(401))
    async with running(sick, json_ok, retry={"attempts": 1}, policy="round_robin") as router:
        for number in range(60):
            await router.ask(bad(number))
        assert len(sick.requests) <= 10
        assert states(router) == [("ready", 0)] * 2


@pytest.mark.parametrize("own", ["token", "credential"])
@virtual_scenario
async def test_if_all_replicas_refuse_the_credential_none_is_ejected(own: str) -> None:
    servers = [HostileReplica(refuses_bad(401)) for _ in range(4)]
    for server in servers:
        server.start()
    credential: dict[str, Any] = {}
    if own == "credential":
        credential["credential"] = Credential(token="sk-own-0123456789")
    entries = tuple(Replica(url=s.url, id=f"r{n}", **credential) for n, s in enumerate(servers))
    upstream = Upstream(token="sk-fleet-0123456789") if own == "token" else Upstream()
    async with running(*servers, replicas=entries, upstream=upstream) as router:
        for number in range(20):
            assert_error(await router.ask(bad(number)), Reason.CREDENTIAL_REFUSED, 502)
        assert states(router) == [("ready", 0)] * 4
        assert sent(router) <= 20 * router.config.retry.attempts


@virtual_scenario
async def test_a_200_that_every_replica_fills_with_an_error_is_relayed() -> None:
    async with running(*[refuses_bad(200)] * 3) as router:
        for number in range(20):
            answer = await router.ask(bad(number))
            assert (answer.status, json.loads(answer.body)) == (200, ERROR)
        assert states(router) == [("ready", 0)] * 3
        assert sent(router) <= 30
