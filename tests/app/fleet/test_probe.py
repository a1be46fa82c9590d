"""The prober with real small servers: up, down, hanging, unusual."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from router.config.in_force import InForce
from router.config.model import Config
from router.core.errors import Reason, RouterError
from router.fleet.monitor.probe import Prober
from router.fleet.replica import Replica
from tests.app.fleet.servers import OK, WELL, Answers, models, serving
from tests.fleet.helpers import Table
from tests.harness.behaviours import rst_unread
from tests.harness.listeners import blackhole, dead_url
from tests.harness.messages import response
from tests.harness.replica import eventually
from tests.harness.running import no_files_left, scenario

HASTY = {"timeout_s": 0.3}  # for servers that do not answer


@asynccontextmanager
async def probing(
    *urls: str, token: str | None = None, start: bool = True, **rules: Any
) -> AsyncIterator[tuple[Table, Prober, list[BaseException]]]:
    """A prober over replicas at these URLs; at the end nothing of the prober may remain."""
    table = Table(**{"interval_s": 0.02, "timeout_s": 2.0, "fall": 2, **rules})
    errors: list[BaseException] = []
    in_force = InForce(Config(health=table.rules), token)
    prober = Prober(table.fleet, in_force, Random(1), errors.append)
    for index, url in enumerate(urls):
        table.add(f"r{index}", None, is_new=True, url=url)
    try:
        if start:
            await prober.start()
        yield table, prober, errors
    finally:
        await prober.stop()
        await asyncio.sleep(0)
        assert prober.running == 0
        table.close()
    assert not errors


def first(table: Table) -> Replica:
    return table.fleet.replicas["r0"]


@scenario
async def test_the_first_round_tells_the_truth_at_once() -> None:
    async with (
        serving(WELL) as engine,
        probing(engine.server.url, dead_url(), interval_s=60) as (table, prober, _),
    ):
        assert [r.id for r in table.fleet.serving.ready] == ["r0"]
        assert first(table).models == frozenset({"m"})
        assert engine.asked == ["/health", "/v1/models"]
        assert prober.running == 2


@scenario
async def test_a_replica_that_dies_and_returns() -> None:
    async with serving(WELL) as engine, probing(engine.server.url) as (table, _, _):
        replica = first(table)
        port = engine.server.port
        await engine.server.stop_listening()
        await eventually(lambda: not replica.health.up, "down")
        with pytest.raises(RouterError) as refused:
            table.fleet.eligibility.replicas("m", None)
        assert refused.value.reason is Reason.NO_REPLICA
        engine.answers = {"/health": OK, "/v1/models": models("other")}
        engine.server.start(port)
        await eventually(lambda: replica.health.up, "up")
        assert replica.models == frozenset({"other"})
        assert [what for what, _ in table.events] == ["down", "up"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        response(500, "Connection: close"),
        response(503, "Connection: close"),
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
    ],
)
@scenario
async def test_what_takes_a_replica_down(answer: bytes | None) -> None:
    async with serving(WELL) as engine, probing(engine.server.url, **HASTY) as (table, _, _):
        replica = first(table)
        engine.answers = {**WELL, "/health": answer}
        await eventually(lambda: not replica.health.up, "down")
        engine.answers = WELL
        await eventually(lambda: replica.health.up, "up")


@scenario
async def test_resets_and_blackholes_take_a_replica_down() -> None:
    with blackhole() as hole:
        async with (
            serving(rst_unread) as engine,
            probing(engine.server.url, hole, dead_url(), **HASTY) as (table, _, _),
        ):
            await eventually(lambda: not table.fleet.serving.ready, "all down")


@scenario
async def test_a_shortage_of_files_takes_no_replica_down() -> None:
    async with serving(WELL) as engine, probing(engine.server.url, fall=1) as (table, prober, _):
        replica = first(table)
        prober.unwatch(replica)
        await eventually(lambda: prober.running == 0, "the end of the probes")
        with no_files_left():
            prober.watch(replica)
            await eventually(lambda: bool(replica.health.why_down), "a failed probe")
            assert replica.health.up
        await eventually(lambda: not replica.health.why_down, "a good probe")
        await engine.server.stop_listening()
        await eventually(lambda: not replica.health.up, "down")


@scenario
async def test_a_hanging_replica_delays_neither_the_start_nor_others() -> None:
    answers: Answers = {"/health": None}
    async with (
        serving(answers) as hanging,
        serving(WELL) as good,
        probing(hanging.server.url, good.server.url) as (table, _, _),
    ):
        assert table.fleet.replicas["r1"].models == frozenset({"m"})
        await eventually(lambda: not first(table).health.up, "down")
        assert [r.id for r in table.fleet.serving.ready] == ["r1"]


@pytest.mark.parametrize("status", [404, 405, 501])
@scenario
async def test_without_a_health_endpoint_the_models_are_asked(status: int) -> None:
    answers: Answers = {"/health": response(status, "Connection: close"), "/v1/models": models("m")}
    async with serving(answers) as engine, probing(engine.server.url) as (table, _, _):
        assert first(table).models == frozenset({"m"})
        engine.answers = {**answers, "/v1/models": response(503, "Connection: close")}
        await eventually(lambda: not first(table).health.up, "down")


@scenario
async def test_who_asks_for_a_login_is_alive() -> None:
    answers: Answers = {path: response(401, "Connection: close") for path in WELL}
    async with serving(answers) as engine, probing(engine.server.url) as (table, _, _):
        await eventually(lambda: len(engine.asked) > 4, "more probes")
        assert first(table).health.up
        assert first(table).models is None
        assert table.ids("anything") == ["r0"]


@scenario
async def test_a_path_of_ones_own_is_judged_strictly() -> None:
    answers: Answers = {"/ready": response(404, "Connection: close"), "/v1/models": models("m")}
    async with (
        serving(answers) as engine,
        probing(engine.server.url, path="/ready") as (
            table,
            _,
            _,
        ),
    ):
        assert not first(table).health.up
        engine.answers = {**answers, "/ready": OK}
        await eventually(lambda: first(table).health.up, "up")
        assert "/health" not in engine.asked


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no JSON",
        b"[]",
        b"3",
        b"null",
        b"{}",
        b'{"data": null}',
        b'{"data": 5}',
        b'{"data": {"id": "m"}}',
        b'{"data": [null]}',
        b'{"data": ["m"]}',
        b'{"data": [{"id": 5}]}',
        b'{"data": [{}]}',
        b'{"data": []}',
        b"[" * 200_000,
        b'{"data": "\xff"}',
        b'{"data": [{"id": "\\ud800"}]}',
        b" " * (5 * 1024 * 1024) + b"{}",
    ],
    ids=lambda body: repr(body[:30]),
)
@scenario
async def test_garbage_for_models_teaches_nothing_and_harms_nobody(body: bytes) -> None:
    answers: Answers = {"/health": OK, "/v1/models": response(200, "Connection: close", body=body)}
    async with (
        serving(answers) as engine,
        probing(engine.server.url, models_interval_s=0.05) as (table, _, _),
    ):
        assert first(table).models is None
        assert first(table).health.up
        engine.answers = WELL
        await eventually(lambda: first(table).models == frozenset({"m"}), "the models")
        engine.answers = answers
        await eventually(lambda: engine.asked.count("/health") > 8, "more probes")
        assert first(table).models == frozenset({"m"})


@scenario
async def test_models_that_hang_are_not_waited_for_long() -> None:
    answers: Answers = {"/health": OK, "/v1/models": None}
    async with serving(answers) as engine, probing(engine.server.url, **HASTY) as (table, _, _):
        await eventually(lambda: engine.asked.count("/health") > 2, "more probes")
        assert first(table).health.up


@scenario
async def test_redirects_are_not_followed() -> None:
    async with serving(WELL) as other:
        moved = response(302, "Connection: close", f"Location: {other.server.url}/health")
        async with serving({"/health": moved}) as engine, probing(engine.server.url) as (_, _, _):
            await eventually(lambda: len(engine.asked) > 2, "more probes")
            assert other.asked == []


@scenario
async def test_the_token_is_sent() -> None:
    async with serving(WELL) as engine, probing(engine.server.url, token="t-1") as (_, _, _):
        assert {fields.get("authorization") for fields in engine.fields} == {"Bearer t-1"}


@scenario
async def test_an_unwatched_replica_is_asked_no_more() -> None:
    async with serving(WELL) as engine, probing(engine.server.url) as (table, prober, _):
        prober.unwatch(first(table))
        await eventually(lambda: prober.running == 0, "the end of its task")
        asked = len(engine.asked)
        await asyncio.sleep(0.1)
        assert len(engine.asked) == asked


@scenario
async def test_stopping_while_probes_hang() -> None:
    async with (
        serving({"/health": None}) as engine,
        probing(engine.server.url, timeout_s=30.0, start=False) as (_, prober, _),
    ):
        starting = asyncio.ensure_future(prober.start())
        await eventually(lambda: bool(engine.asked), "a probe")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


@scenario
async def test_an_error_of_a_near_proxy_is_no_measurement_of_the_distance() -> None:
    gone = response(503, "Connection: close")
    async with serving({"/health": gone}) as engine, probing(engine.server.url) as (table, _, _):
        await eventually(lambda: len(engine.asked) > 2, "more probes")
        assert first(table).speed.rtt_s == 0.0
        engine.answers = dict(WELL)
        await eventually(lambda: first(table).speed.rtt_s > 0.0, "the engine answers")
