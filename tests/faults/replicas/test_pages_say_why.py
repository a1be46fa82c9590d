"""GET /replicas and GET /fleet say for each replica that is not ready why, and since when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.app.pages import page, text_page
from tests.harness.behaviours import answer, json_ok, until_closed
from tests.harness.control import HEALTH, MODELS, Answer
from tests.harness.messages import chat, json_response, response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, routed, running, scenario

FAST: dict[str, Any] = {"interval_s": 0.05, "models_interval_s": 0.05, "rise": 2, "fall": 1}
BROKEN = answer(json_response({"error": {"message": "broken"}}, 500))


def status(code: int) -> Answer:
    async def say(connection: ReplicaConnection) -> None:
        await connection.send(response(code))

    return say


async def shown(router: Router, name: str = "r0") -> dict[str, Any]:
    (found,) = [r for r in await page(router, "/replicas") if r["id"] == name]
    return dict(found)


async def note(router: Router, name: str = "r0") -> str:
    """The row of a replica in GET /fleet."""
    text = await text_page(router, "/fleet")
    (row,) = [line for line in text.splitlines() if line.split()[:1] == [name]]
    return row


async def reaches(router: Router, state: str, why: str, name: str = "r0") -> dict[str, Any]:
    """Wait until the replica is in a state; check its reason on both pages."""
    replica = router.app.parts.fleet.replicas[name]

    def is_there() -> bool:
        now = router.app.parts.fleet.clock()
        return (replica.state(now), why in replica.why(now)) == (state, True)

    await eventually(is_there, f"{state}: {why}; it is {replica.why(0.0)!r}")
    found = await shown(router, name)
    assert (found["state"], why in found["why"]) == (state, True), found
    since = datetime.fromisoformat(found["since"])
    assert timedelta(0) <= datetime.now(UTC) - since < timedelta(minutes=5)
    assert found["since_s"] >= 0.0
    assert found["why"] in await note(router, name)
    return found


@pytest.mark.parametrize(
    ("path", "reply", "why"),
    [
        (HEALTH, status(503), "/health answered 503"),
        (HEALTH, until_closed, "/health: no answer in time"),
    ],
    ids=["503", "timeout"],
)
@scenario
async def test_down(path: str, reply: Answer, why: str) -> None:
    replica = HostileReplica(json_ok)
    async with running(replica, json_ok, health={**FAST, "timeout_s": 0.5}) as router:
        replica.control.at[path] = reply
        found = await reaches(router, "down", why)
        assert "(1 down); " in await text_page(router, "/fleet")
        again = await shown(router)
        assert again["since_s"] >= found["since_s"]
        del replica.control.at[path]
        await eventually(lambda: len(router.app.parts.fleet.serving.ready) == 2, "up")
        healthy = await shown(router)
        assert (healthy["state"], healthy["why"]) == ("ready", None)


@scenario
async def test_unknown_before_the_first_probe() -> None:
    replica = HostileReplica(json_ok)
    replica.control.at[HEALTH] = until_closed
    health = {**FAST, "timeout_s": 30.0}
    async with running(json_ok, health=health) as router:
        replica.start()
        try:
            added = await router.admin("/replicas", "POST", body={"url": replica.url, "id": "new"})
            assert added.status == 201
            await reaches(router, "unknown", "no probe has ended yet", "new")
        finally:
            await router.admin("/replicas/new", "DELETE")
            await replica.stop()


@pytest.mark.parametrize("code", [401, 403])
@scenario
async def test_an_engine_key_that_is_missing_or_wrong(code: int) -> None:
    """vLLM answers /health without a key, and refuses /v1/models."""
    replica = HostileReplica(json_ok)
    replica.control.at[MODELS] = status(code)
    why = f"/v1/models answered {code}: the engine does not accept the router's key"
    async with running(replica, json_ok, health=FAST) as router:
        await reaches(router, "unknown", why)
        replica.control.at[MODELS] = status(503)
        await reaches(router, "unknown", "/v1/models answered 503")
        del replica.control.at[MODELS]
        await eventually(lambda: len(router.app.parts.fleet.serving.ready) == 2, "up")
        assert (await shown(router))["why"] is None


@scenario
async def test_the_only_replica_is_ready_without_a_key_and_its_note_says_so() -> None:
    replica = HostileReplica(json_ok)
    replica.control.at[MODELS] = status(401)
    async with running(replica, health=FAST) as router:
        await reaches(router, "ready", "/v1/models answered 401")
        assert (await router.ask()).status == 200
    other = HostileReplica(json_ok)
    other.control.at[MODELS] = status(401)
    async with running(other, health=FAST, replica={"models": ("m",)}) as router:
        assert (await shown(router))["why"] is None


@scenario
async def test_ejected_then_on_trial() -> None:
    health = {**FAST, "eject_after": 2, "eject_base_s": 30.0, "slow_start_s": 0.0}
    async with running(BROKEN, json_ok, health=health, policy="round_robin") as router:
        for _ in range(4):
            await router.ask(chat())
        why = "2 failures in a row, the last: server_error; request "
        found = await reaches(router, "ejected", why)
        assert 0.0 < found["ejected_s"] < 40.0
        assert "; trial in " in await note(router)
        assert (found["failed"], found["failures"]) == (2, {"server_error": 2})
        assert (await shown(router, "r1"))["failed"] == 0
        replica = router.app.parts.fleet.replicas["r0"]
        replica.health.ejected_until = router.app.parts.fleet.clock()
        router.app.parts.fleet.on_deadline(router.app.parts.fleet.clock())
        await reaches(router, "half_open", why)


@routed(json_ok, json_ok)
async def test_held_back_by_the_operator_and_by_a_notice(router: Router) -> None:
    await router.admin("/replicas/r0/cordon", "POST")
    await reaches(router, "cordoned", "by the admin API")
    await router.admin("/replicas/r0/drain", "POST")
    await reaches(router, "drained", "by the admin API")
    await router.admin("/replicas/r0/uncordon", "POST")
    assert (await shown(router))["why"] is None
    await router.admin("/replicas/r1/reclaim", "POST", body={"seconds": 100})
    found = await shown(router, "r1")
    assert found["why"] == "a notice says that its machine is reclaimed"


@scenario
async def test_a_replica_that_serves_because_too_few_are_fit() -> None:
    health = {**FAST, "eject_after": 2, "eject_base_s": 30.0, "panic_share": 1.0}
    async with running(BROKEN, json_ok, health=health, policy="round_robin") as router:
        for _ in range(4):
            await router.ask(chat())
        found = await reaches(router, "ejected", "failures in a row")
        assert found["panic"] is True
        assert "gets requests, because too few replicas of its models are" in await note(router)
        assert (await shown(router, "r1"))["panic"] is False


@routed(json_ok)
async def test_the_queue_is_text_on_request(router: Router) -> None:
    assert (await page(router, "/queue"))["waiting"] == 0
    for answer_ in (
        await router.admin("/queue?format=text"),
        await router.admin("/queue", "GET", "Accept: text/plain"),
        await router.admin("/queue", "GET", "Accept: text/html,application/xml;q=0.9,*/*;q=0.8"),
    ):
        assert answer_.body.startswith(b"0 requests wait in the queue\n")
        assert (answer_.header("content-type") or "").startswith("text/plain")
    for field in (
        "Accept: */*",
        "Accept: application/json",
        "Accept: application/json, text/plain",
    ):
        assert (await router.admin("/queue", "GET", field)).json()["enabled"] is True
    refused = await router.admin("/queue?format=xml")
    assert (refused.status, refused.json()["error"]["code"]) == (400, "bad_query")
    assert (await router.admin("/queue?format=json", "GET", "Accept: text/plain")).json()
