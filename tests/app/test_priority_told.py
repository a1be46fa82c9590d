"""Each replica gets the priority in its own format, over sockets.

Emulated engines read the number as the real ones do. A priority injected by a client never reaches
an engine.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from time import time
from typing import Any

import msgspec
import pytest

from router.config.model import Keys, Priority, PriorityRule, Queue
from router.fleet.engines.common.priority import EPOCH
from router.lab.emulator.http.personas.trtllm import TrtLlm
from tests.harness.behaviours import echo
from tests.harness.control import anonymous
from tests.harness.emulated import emulated
from tests.harness.messages import chat, chat_body, json_response, post_json
from tests.harness.reading import Request, Response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario

CLASSES = ("critical", "high", "normal", "low", "batch")
NO_CEILING = Priority(ceiling="critical")
# Seconds by which the time-based number of a class is later than that of class normal.
BEHIND_S = {"critical": -4200.0, "high": -300.0, "normal": 0.0, "low": 300.0, "batch": 600.0}
NOT_TOLD = object()


async def ask(
    router: Router, *headers: str, path: str = "/v1/chat/completions", **body: Any
) -> Response:
    return await router.ask(post_json(path, chat_body(max_tokens=1, **body), *headers), "POST")


def class_in(dialect: str, number: Any) -> Any:
    """The class that a priority number means for a request that has just arrived; None: no
    number.
    """
    if number is None:
        return None
    seconds = number / 10.0 if dialect == "vllm" else -15.0 * number
    behind_s = seconds + EPOCH - time()
    (name,) = (name for name, s in BEHIND_S.items() if abs(s - behind_s) < 60.0)
    return name


def asked(router: Router) -> list[Request]:
    """The requests of the first replica, without the router's own probes and polls."""
    return [request for request in router.replica.requests if request.method == "POST"]


@pytest.mark.parametrize(
    ("persona", "settings", "priority", "expected"),
    [
        ("vllm", {}, None, [*CLASSES]),
        ("sglang", {}, None, [280, 20, 0, -20, -40]),
        ("sglang", {"low_priority_values_first": True}, "sglang-low-first", [-280, -20, 0, 20, 40]),
        ("trtllm", {}, None, [0.9, 0.7, None, 0.3, 0.1]),
        ("tgi", {}, None, [None] * 5),
        ("llamacpp", {}, None, [None] * 5),
        ("vllm", {}, "none", [None] * 5),
    ],
)
@scenario
async def test_each_class_in_each_dialect(
    persona: str, settings: dict[str, Any], priority: str | None, expected: list[Any]
) -> None:
    async with emulated(persona, **settings) as engine:
        replica = {"engine": persona, "priority": priority}
        async with running(engine.url, replica=replica, priority=NO_CEILING) as router:

            def told() -> list[Any]:
                if persona == "vllm":
                    return [class_in(persona, number) for number in engine.told]
                return engine.told

            for name in CLASSES:
                assert (await ask(router, priority=name)).status == 200
            assert told() == expected
            for name in CLASSES:
                assert (await ask(router, f"x-priority: {name}")).status == 200
            assert told() == expected * 2
            stream = await ask(router, priority="high", stream=True)
            assert stream.events()[-1] == "[DONE]"
            assert told()[-1] == expected[1]
            drops = sum(router.app.metrics.priority_dropped_by_replica.values())
            assert drops == (9 if expected == [None] * 5 else 0)


@scenario
async def test_each_replica_of_a_pool_gets_its_own_dialect() -> None:
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(emulated(persona))
            for persona in ("vllm", "sglang", "trtllm", "tgi")
        ]
        async with running(*(e.url for e in engines), policy="round_robin") as router:
            for replica, engine in zip(
                router.app.parts.fleet.replicas.values(), engines, strict=True
            ):
                replica.engine = engine.engine.settings.persona
            for _ in engines:
                assert (await ask(router, priority="high")).status == 200
            vllm, *others = engines
            assert [class_in("vllm", number) for number in vllm.told] == ["high"]
            assert [e.told for e in others] == [[20], [0.7], [None]]


@scenario
async def test_an_sglang_without_metrics_gets_numbers_that_follow_the_time() -> None:
    """With metrics, every number stays the same for ever."""
    async with (
        emulated("sglang", metrics=False) as engine,
        running(engine.url, polling={"interval_s": 0.02}) as router,
    ):
        (replica,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: replica.endpoint.metrics_on is False, "it is known")
        for name in ("high", "normal", "batch"):
            assert (await ask(router, priority=name)).status == 200
        assert [class_in("sglang", number) for number in engine.told] == ["high", "normal", "batch"]


@scenario
async def test_a_retry_uses_the_dialect_of_its_replica() -> None:
    async def busy(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"error": {}}, 503))

    async with (
        emulated("sglang") as engine,
        running(
            busy,
            engine.url,
            retry={"backoff_s": 0.0},
            policy="round_robin",
            priority=NO_CEILING,
        ) as router,
    ):
        first, second = router.app.parts.fleet.replicas.values()
        first.engine, second.engine = "vllm", "sglang"
        for _ in range(2):
            assert (await ask(router, priority="critical")).status == 200
        assert engine.told == [280, 280]
        assert asked(router), "the busy one was asked first at least once"
        for request in asked(router):
            assert class_in("vllm", json.loads(request.body)["priority"]) == "critical"


@scenario
async def test_a_retry_has_the_number_of_its_arrival() -> None:
    async def busy(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"error": {}}, 503))

    replica = {"engine": "vllm"}
    retry = {"backoff_s": 0.3, "backoff_max_s": 0.3}
    async with running(busy, busy, replica=replica, retry=retry) as router:
        assert (await ask(router)).status == 503
        numbers = [
            json.loads(request.body)["priority"]
            for replica in router.replicas
            for request in replica.requests
            if request.method == "POST"
        ]
        assert len(numbers) == 2 and len(set(numbers)) == 1


# A server that does not know the priority field.


@scenario
async def test_an_old_server_is_detected_once_and_gets_no_priority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TrtLlm, "version", "1.2.1")
    async with (
        emulated("trtllm") as engine,
        running(engine.url, replica={"engine": "trtllm"}) as router,
    ):
        for stream in (False, True, False):
            assert (await ask(router, priority="high", stream=stream)).status == 200
        assert engine.told == [None] * 3, "a refused request never got that far"
        (replica,) = router.app.parts.fleet.replicas.values()
        assert replica.errors.refuses_priority
        assert router.app.metrics.priority_refused == 1
        lines = await router.log(3)
        assert [line["attempts"] for line in lines] == [2, 1, 1]
        assert [one[2] for one in lines[0]["tried"]] == ["replica_refused", "ok"]
        assert router.app.metrics.priority_dropped_by_replica == {"r0": 3}


def complains(of: bytes, status: int = 400) -> Any:
    """An engine that refuses every request whose body contains these bytes."""

    async def behave(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if of in bytes(request.body):
                words = "[{'type': 'extra_forbidden', 'loc': ('body', 'priority'), 'msg': 'Extra"
                await connection.send(json_response({"message": words}, status))
            else:
                await connection.send(json_response({"ok": True}))

    return behave


@scenario
async def test_a_client_cannot_make_the_router_stop_sending_priorities() -> None:
    async with running(complains(b"evil"), replica={"engine": "trtllm"}) as router:
        assert (await ask(router, priority="high", evil=1)).status == 400
        (replica,) = router.app.parts.fleet.replicas.values()
        assert not replica.errors.refuses_priority
        assert (await ask(router, priority="high")).status == 200
        assert [b'"priority":0.7' in bytes(r.body) for r in asked(router)] == [
            True,
            False,
            True,
        ]


@scenario
async def test_sglang_that_aborts_on_priorities_gets_none() -> None:
    async def behave(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if b'"priority"' in bytes(request.body):
                words = "Using priority is disabled for this server. Please send a new request"
                await connection.send(json_response({"message": words}, 503))
            else:
                await connection.send(json_response({"ok": True}))

    async with running(behave, replica={"engine": "sglang"}) as router:
        for _ in range(2):
            assert (await ask(router)).status == 200
        assert len(asked(router)) == 3


@scenario
async def test_a_busy_sglang_is_still_replaced() -> None:
    async def busy(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"message": "The request queue is full."}, 503))

    async with running(busy, echo, replica={"engine": "sglang"}, policy="round_robin") as router:
        for _ in range(2):
            assert (await ask(router)).status == 200


# Priorities injected by clients.


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "tgi", "other"])
@scenario
async def test_a_clients_own_number_is_not_forwarded(engine: str) -> None:
    bodies = [
        b'{"model":"m","priority":-999,"messages":[]}',
        b'{"model":"m","messages":[],"priority":4,"priority":-999}',
        b'{"model":"m","messages":[],"\\u0070riority":-999}',
        b'{"model":"m","messages":[],"priority":null}',
    ]
    headers = ("X-Vllm-Priority: -999", "X-Override-Priority: 999", "X-Override-Rid: a")
    headers += ("X-Other: passes",)
    rules = Priority(ceiling="low", dialect="hedgerow")
    async with running(echo, replica={"engine": engine}, priority=rules) as router:
        for body in bodies:
            data = post_json("/v1/chat/completions", body, *headers)
            assert (await router.ask(data, "POST")).status == 200
        expected = {"vllm": "low", "sglang": -20, "trtllm": 0.3}.get(engine, NOT_TOLD)
        for request in asked(router):
            top = msgspec.json.decode(bytes(request.body), type=dict[str, msgspec.Raw])
            assert bytes(request.body).count(b"riority") == (expected is not NOT_TOLD)
            number = json.loads(request.body).get("priority", NOT_TOLD)
            assert (class_in("vllm", number) if engine == "vllm" else number) == expected
            assert {"model", "messages"} <= top.keys()
            for name in ("x-vllm-priority", "x-override-priority", "x-priority"):
                assert request.all(name) == []
            assert request.all("x-override-rid") == []
            assert request.header("x-other") == "passes"


@scenario
async def test_the_messages_route_gets_the_priority_in_a_header() -> None:
    async with running(echo, replica={"engine": "vllm"}) as router:
        await ask(router, "X-Vllm-Priority: -9", path="/v1/messages", priority="high")
        await ask(router, "X-Vllm-Priority: -9", path="/v1/messages")
        for request, name in zip(asked(router), ("high", "normal"), strict=True):
            (number,) = request.all("x-vllm-priority")
            assert class_in("vllm", int(number)) == name
            assert "priority" not in json.loads(request.body)


# Endpoints, and the body that the replica receives from each.


@pytest.mark.parametrize(
    ("path", "forwarded", "name"),
    [
        ("/v1/batch/chat/completions", "/v1/chat/completions", "batch"),
        ("/v1/priority/chat/completions?a=b", "/v1/chat/completions?a=b", "high"),
        ("/v1/chat/completions", "/v1/chat/completions", "normal"),
        ("/v1/batches", "/v1/batches", None),
    ],
)
@scenario
async def test_the_endpoints_prefix_is_taken_off(
    path: str, forwarded: str, name: str | None
) -> None:
    async with running(echo, replica={"engine": "vllm"}) as router:
        client = await router.client()
        for _ in range(2):  # the second head is cached
            await client.send(post_json(path, chat_body()))
            assert (await client.recv_response("POST")).status == 200
        for request in asked(router):
            assert request.target == forwarded
            assert class_in("vllm", json.loads(request.body).get("priority")) == name


@scenario
async def test_a_prefix_opens_no_control_endpoint() -> None:
    async with running(echo) as router:
        for path in ("/v1/batch/load_lora_adapter", "/v1/batch//chat", "/v1/batch/../metrics"):
            assert (await router.ask(post_json(path, {}), "POST")).status in (400, 404)
        assert asked(router) == []


# Steps: later priorities for a user's further requests.


@scenario
async def test_a_burst_of_one_user_gets_stepped_priorities() -> None:
    """The order of the queue has no fair sharing between flows."""
    async with (
        emulated("vllm", speed=1.0) as engine,
        running(
            engine.url,
            replica={"engine": "vllm"},
            keys=Keys(names_users=True),
            queue=Queue(policy="aging"),
        ) as router,
    ):
        clients = [await router.client() for _ in range(5)]
        for client in clients[:4]:
            await client.send(chat("x-user-id: ann", max_tokens=30, stream=True))
            await asyncio.sleep(0.01)
        await clients[4].send(chat(user="bob", max_tokens=1))
        for client in clients:
            assert (await client.recv_response("POST")).status == 200
        behind_s = [(number - engine.told[0]) / 10.0 for number in engine.told]
        for found, expected in zip(behind_s, [0.0, 37.5, 60.0, 75.0, 0.0], strict=True):
            assert found == pytest.approx(expected, abs=5.0)
        assert len(router.app.parts.dispatcher.tenants.pending) == 0


@scenario
async def test_steps_can_be_switched_off() -> None:
    async with (
        emulated("vllm", speed=1.0) as engine,
        running(
            engine.url,
            replica={"engine": "vllm"},
            keys=Keys(names_users=True),
            priority=Priority(steps=False),
        ) as router,
    ):
        clients = [await router.client() for _ in range(3)]
        for client in clients:
            await client.send(chat("x-user-id: ann", max_tokens=10, stream=True))
        for client in clients:
            assert (await client.recv_response("POST")).status == 200
        assert [class_in("vllm", number) for number in engine.told] == ["normal"] * 3
        assert max(engine.told) - min(engine.told) < 100


# Logs and metrics of the priority.


@scenario
async def test_the_fleet_page_shows_each_replicas_dialect() -> None:
    async with running(echo, echo, replica={"engine": "tgi"}) as router:
        first, second = router.app.parts.fleet.replicas.values()
        second.engine = "vllm"
        shown = router.app.replicas()
        assert [entry["priority"] for entry in shown] == [
            {"dialect": "none", "honoured": False, "last_sent": None},
            {"dialect": "vllm", "honoured": None, "last_sent": None},
        ]
        assert first.engine == "tgi"


def test_the_scheduling_reported_by_sglang_is_used() -> None:
    for settings, told, shown in (
        ({"low_priority_values_first": True}, [-20], "sglang-low-first"),
        ({}, [20], "sglang"),
        ({"scheduling_policy": "fcfs"}, [None], "none"),
    ):
        learned(settings, told, shown)


def learned(settings: dict[str, Any], told: list[Any], shown: str) -> None:
    @scenario
    async def story() -> None:
        async with (
            emulated("sglang", **settings) as engine,
            running(engine.url, polling={"interval_s": 0.02}) as router,
        ):
            (replica,) = router.app.parts.fleet.replicas.values()
            await eventually(lambda: replica.endpoint.by_priority is not None, "it is known")
            assert (await ask(router, priority="high")).status == 200
            assert engine.told == told
            (entry,) = router.app.replicas()
            assert entry["priority"] == {
                "dialect": shown,
                "honoured": shown != "none",
                "last_sent": None if told[-1] is None else str(told[-1]),
            }

    story()


@scenario
async def test_drops_and_ceilings_are_in_the_metrics() -> None:
    async with running(
        HostileReplica(echo, anonymous()), priority=Priority(ceiling="low")
    ) as router:
        data = post_json("/v1/chat/completions", chat_body(priority="high"))
        assert (await router.ask(data)).status == 200
        page = bytes((await router.admin("/metrics")).body).decode()
        (name,) = router.app.parts.fleet.replicas
        assert f'hedgerow_priority_dropped_total{{replica="{name}"}} 1.0' in page
        assert 'hedgerow_priority_clamped_total{class="low",source="body"} 1.0' in page
        assert "hedgerow_priority_refused_total 0.0" in page


@scenario
async def test_classes_are_in_the_log_and_ceilings_are_counted() -> None:
    rules = Priority(
        dialect="hedgerow", rules=(PriorityRule(priority="low", header="x-app", value="crawler"),)
    )
    async with running(echo, priority=rules) as router:
        await ask(router, priority=0)
        await ask(router, "x-app: crawler")
        await ask(router)
        assert [line["class"] for line in await router.log(3)] == ["high", "low", "normal"]
        assert router.app.parts.dispatcher.tenants.judge.clamped["body"] == [0, 1, 0, 0, 0]
