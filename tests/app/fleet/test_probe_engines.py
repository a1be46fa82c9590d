"""The prober with each engine: the path of its health check, and the models it learns."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from router.config.model.replicas import Engine
from router.fleet.engines.common.models import context_tokens
from router.fleet.engines.common.registry import ENGINES
from router.fleet.monitor.probe import Prober
from tests.app.fleet.servers import OK, WELL, Answers, serving
from tests.app.fleet.test_probe import first, probing
from tests.fleet.engines.pages import read
from tests.fleet.helpers import Table
from tests.harness.messages import response
from tests.harness.replica import eventually
from tests.harness.running import scenario

HEALTH = ("/ready", "/health")


def entries(*found: dict[str, Any]) -> bytes:
    body = json.dumps({"object": "list", "data": found}).encode()
    return response(200, "Connection: close", body=body)


def owned_by(owner: str) -> Answers:
    return {"/health": OK, "/v1/models": entries({"id": "m", "owned_by": owner})}


@asynccontextmanager
async def empty(**rules: Any) -> AsyncIterator[tuple[Table, Prober]]:
    """A prober that is not started, and has no replicas yet."""
    async with probing(start=False, **rules) as (table, prober, _):
        yield table, prober


def close(status: int) -> bytes:
    return response(status, "Connection: close")


@pytest.mark.parametrize(
    ("owner", "engine"), [("vllm", "vllm"), ("tensorrt_llm", "trtllm"), ("somebody", None)]
)
@scenario
async def test_models_say_which_engine_it_is(owner: str, engine: str | None) -> None:
    async with (
        serving(owned_by(owner)) as server,
        probing(server.server.url, timeout_s=2.0) as (table, _, _),
    ):
        assert first(table).engine == engine
        assert server.asked[:2] == ["/health", "/v1/models"]


@scenario
async def test_another_engine_at_the_same_address_is_noticed() -> None:
    async with (
        serving(owned_by("vllm")) as server,
        probing(server.server.url, models_interval_s=0.02, timeout_s=2.0) as (table, _, _),
    ):
        assert first(table).engine == "vllm"
        server.answers = owned_by("sglang")
        await eventually(lambda: first(table).engine == "sglang", "another engine")


@scenario
async def test_the_configuration_says_it_better() -> None:
    answers = {**owned_by("vllm"), "/ready": OK}
    async with serving(answers) as server, empty(timeout_s=2.0) as (table, prober):
        table.add("r0", None, is_new=True, url=server.server.url, engine="sglang")
        await prober.start()
        assert first(table).engine == "sglang"
        assert server.asked[:2] == ["/ready", "/v1/models"]


async def probed(engine: Engine, answers: Answers, **rules: Any) -> tuple[bool, list[str]]:
    """Whether a first probe succeeds, and the requests that it sent."""
    async with serving(answers) as server, empty(timeout_s=2.0, **rules) as (table, prober):
        replica = table.add("r0", None, is_new=True, url=server.server.url, engine=engine)
        await prober.start()
        await prober.stop()
        return replica.health.up, [path for path in server.asked if path in HEALTH]


@pytest.mark.parametrize(
    ("answers", "up", "asked"),
    [
        ({**WELL, "/ready": OK}, True, ["/ready"]),
        ({**WELL, "/ready": close(503)}, False, ["/ready"]),
        (WELL, True, ["/ready", "/health"]),
        ({**WELL, "/ready": close(403)}, True, ["/ready", "/health"]),
        ({"/health": close(503)}, False, ["/ready", "/health"]),
        ({"/v1/models": WELL["/v1/models"]}, True, ["/ready", "/health"]),
    ],
)
@scenario
async def test_sglang_is_asked_whether_it_is_ready(
    answers: Answers, up: bool, asked: list[str]
) -> None:
    """SGLang's /health generates a token; the router uses it only at a server without /ready."""
    assert await probed("sglang", answers, interval_s=3600) == (up, asked)


@scenario
async def test_a_slow_health_check_is_given_its_time() -> None:
    """The usual time limit of a probe is shorter than the health check of this engine."""
    async with (
        serving({"/health": None}) as server,
        empty(timeout_s=0.1, interval_s=0.02) as (table, prober),
    ):
        replica = table.add("r0", None, url=server.server.url, engine="sglang")
        other = table.add("r1", None, url=server.server.url, engine="vllm")
        prober.watch(replica)
        prober.watch(other)
        await eventually(lambda: not other.health.up, "the impatient one down")
        assert replica.health.up
        assert replica.health.probe_streak == 0


@pytest.mark.parametrize("engine", sorted(ENGINES.keys() - {"sglang"}))
@scenario
async def test_others_have_a_health_path(engine: Engine) -> None:
    assert await probed(engine, WELL, interval_s=3600) == (True, ["/health"])


@scenario
async def test_adapters_and_lengths_are_learned_and_refreshed() -> None:
    base = {"id": "m", "owned_by": "vllm", "parent": None, "max_model_len": 4096}
    adapter = {"id": "sql", "owned_by": "vllm", "parent": "m"}
    async with (
        serving({"/health": OK, "/v1/models": entries(base)}) as server,
        probing(server.server.url, models_interval_s=0.02, timeout_s=2.0) as (table, _, _),
    ):
        assert context_tokens(first(table).listed.objects["m"]) == 4096
        server.answers = {"/health": OK, "/v1/models": entries(base, adapter)}
        await eventually(lambda: table.ids(None) == ["r0"], "ready")
        await eventually(lambda: first(table).models == {"m", "sql"}, "the adapter")
        longer = {**base, "max_model_len": 8192}
        server.answers = {"/health": OK, "/v1/models": entries(longer)}
        await eventually(lambda: first(table).models == {"m"}, "without it")
        assert context_tokens(first(table).listed.objects["m"]) == 8192


@pytest.mark.parametrize(
    ("engine", "path", "document", "length"),
    [
        ("tgi", "/info", "tgi-info.json", 4096),
        ("llamacpp", "/props", "llamacpp-props.json", 65536),
        ("sglang", "/server_info", "sglang-server-info.json", 32768),
    ],
)
@scenario
async def test_a_length_that_the_models_do_not_tell(
    engine: Engine, path: str, document: str, length: int
) -> None:
    answers: Answers = {
        "/health": OK,
        "/v1/models": entries({"id": "m", "max_model_len": None}, {"id": "n", "max_model_len": 7}),
        path: response(200, "Connection: close", body=read(document)),
    }
    async with serving(answers) as server, empty(interval_s=3600, timeout_s=2.0) as (table, prober):
        table.add("r0", None, url=server.server.url, engine=engine)
        await prober.start()
        assert {
            name: context_tokens(entry) for name, entry in first(table).listed.objects.items()
        } == {
            "m": length,
            "n": 7,
        }


@pytest.mark.parametrize(
    "answer", [None, close(404), response(200, "Connection: close", body=b"x")]
)
@scenario
async def test_a_length_that_nobody_tells(answer: bytes | None) -> None:
    answers: Answers = {"/health": OK, "/v1/models": entries({"id": "m"}), "/info": answer}
    async with serving(answers) as server, empty(interval_s=3600, timeout_s=0.5) as (table, prober):
        table.add("r0", None, url=server.server.url, engine="tgi")
        await prober.start()
        await eventually(lambda: first(table).models == frozenset({"m"}), "the models")
        assert context_tokens(first(table).listed.objects["m"]) is None
