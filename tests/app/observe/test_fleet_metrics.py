"""Metrics that show which replica fails, and how the targets of a split compare."""

import asyncio
from collections.abc import Awaitable, Callable

from router.config.model import Replica, Upstream
from tests.app.pages import samples
from tests.faults.names.engines import Engine, settings
from tests.harness.behaviours import json_ok, rst_after_request
from tests.harness.control import MODELS
from tests.harness.messages import chat, json_response
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.running import Router, running, scenario

REFUSED, UP = "hedgerow_replica_key_refused", "hedgerow_replica_up"


async def become(router: Router, family: str, wanted: dict[str, float]) -> None:
    """Wait until a metric has these values by replica."""
    while await samples(router, family, "replica") != wanted:
        await asyncio.sleep(0.02)


@scenario
async def test_the_replica_that_is_down_has_the_value_0() -> None:
    async with running(json_ok, json_ok) as router:
        assert await samples(router, UP, "replica") == {"r0": 1, "r1": 1}
        assert await samples(router, "hedgerow_replica_inflight", "replica") == {"r0": 0, "r1": 0}
        port = router.replicas[1].port
        await router.replicas[1].stop_listening()
        await become(router, UP, {"r0": 1, "r1": 0})
        router.replicas[1].start(port)
        await become(router, UP, {"r0": 1, "r1": 1})


@scenario
async def test_what_is_unknown_has_no_value() -> None:
    async with running(json_ok, quiet_control_plane="a poll shows the size") as router:
        router.app.parts.fleet.replicas["r0"].kv_tokens = None
        assert await samples(router, "hedgerow_replica_kv_tokens", "replica") == {}


@scenario
async def test_a_replica_that_was_ejected_has_the_value_0() -> None:
    """Its probes succeed. The errors are counted by replica and reason."""
    health = {"eject_base_s": 60.0, "eject_max_s": 60.0}
    async with running(rst_after_request, json_ok, health=health, policy="round_robin") as router:

        async def ask() -> None:
            while not router.app.parts.metrics.ejections_by_replica:
                assert (await router.ask()).status == 200

        await ask()
        assert await samples(router, UP, "replica") == {"r0": 0, "r1": 1}
        attempts = await samples(router, "hedgerow_attempts_total", "replica", "reason")
        assert {key for key in attempts if key[1] != "ok"} == {("r0", "replica_reset")}


def checks_keys(key: str) -> Callable[[ReplicaConnection], Awaitable[None]]:
    """The model list of an engine that wants this key."""

    async def answer(connection: ReplicaConnection) -> None:
        asked = connection.reader.done[-1]
        if asked.header("authorization") != f"Bearer {key}":
            await connection.send(json_response({"error": "Unauthorized"}, 401))
            return
        models = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}]}
        await connection.send(json_response(models))

    return answer


@scenario
async def test_a_replica_that_refuses_the_routers_key() -> None:
    one, two = HostileReplica(json_ok), HostileReplica(json_ok)
    one.control.at[MODELS] = checks_keys("old")
    two.control.at[MODELS] = checks_keys("new")
    async with running(one, two, upstream=Upstream(token="old")) as router:
        await become(router, REFUSED, {"r0": 0, "r1": 1})
        router.change(upstream=Upstream(token="new"))
        await router.app.reload()
        await become(router, REFUSED, {"r0": 1, "r1": 0})
        one.control.at.clear()
        await become(router, REFUSED, {"r0": 0, "r1": 0})


@scenario
async def test_a_missing_key_is_shown_if_the_models_are_not_configured() -> None:
    one = HostileReplica(json_ok)
    one.control.at[MODELS] = checks_keys("secret")
    async with running(one) as router:
        await become(router, REFUSED, {"r0": 1})
        # Only the clients have a key, and the router does not need the list.
        router.change(replicas=(router.at(0, models=("m",)),))
        await router.app.reload()
        assert await samples(router, REFUSED, "replica") == {}


@scenario
async def test_tokens_are_counted_by_the_replica_that_answered() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    usage["prompt_tokens_details"] = {"cached_tokens": 64}  # type: ignore[assignment]
    body = {"object": "chat.completion", "choices": [], "usage": usage}

    async def answer(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response(body))

    async with running(answer, answer, policy="round_robin") as router:
        for _ in range(4):
            assert (await router.ask()).status == 200
        found = await samples(router, "hedgerow_replica_tokens_total", "replica", "kind")
        each = {"prompt": 200, "output": 14, "cached": 128}
        assert found == {(r, kind): n for r in ("r0", "r1") for kind, n in each.items()}


@scenario
async def test_the_targets_of_a_split_have_their_own_statuses_and_first_tokens() -> None:
    """Also a target that has never answered a request well."""
    stable, canary = Engine("m"), Engine("m")
    canary.status = 500
    for engine in (stable, canary):
        engine.start()
    replicas = (
        Replica(url=stable.url, id="r0", pool="stable"),
        Replica(url=canary.url, id="r1", pool="canary"),
    )
    targets = [{"pool": "stable"}, {"pool": "canary"}]
    rules = settings(models={"m": {"targets": targets}}, pools={"stable": {}, "canary": {}})
    async with running(stable, canary, replicas=replicas, **rules) as router:
        for number in range(40):
            await router.ask(chat(f"x-session-id: s{number}", stream=True), "POST")
        await router.log(40)
        ends = await samples(router, "hedgerow_model_ends_total", "model", "reason", "status")
        of_canary = {key: n for key, n in ends.items() if key[0] == "m@canary"}
        assert {key[0] for key in ends} == {"m@stable", "m@canary"}
        assert (
            sum(n for key, n in ends.items() if key[1:] == ("ok", "200"))
            == ends["m@stable", "ok", "200"]
        )
        assert of_canary and not any(reason == "ok" for _, reason, _ in of_canary)
        assert sum(ends.values()) == 40
        ttft = await samples(router, "hedgerow_model_ttft_seconds_count", "model")
        assert ttft == {"m@stable": ends["m@stable", "ok", "200"]}
