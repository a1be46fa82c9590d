"""A client's deadline: when it passes, the client gets an error, and the request is not served."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from router.config.model import Queue
from router.core.errors import Reason
from tests.harness.behaviours import answer, hang, json_ok, stream_then_hang
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    json_response,
    request,
    role,
    token,
)
from tests.harness.queueing import ONE, Turnstile, counts, of_normal, queue, send, waiting
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, virtual_scenario

NORMAL = 2
NINE = "x-request-timeout-ms: 9000"
EIGHT = "x-request-timeout-ms: 8000"


def all_ended(replica: HostileReplica) -> bool:
    return all(session.ended for session in replica.sessions)


async def asks(router: Router, *fields: str, **body: Any) -> Any:
    """Send a request with these header lines, and return once it waits."""
    client = await router.client()
    before = sum(counts(router, "queued"))
    await client.send(chat(*fields, **body))
    await eventually(lambda: sum(counts(router, "queued")) == before + 1, "it waits")
    return client


@pytest.mark.parametrize(
    "field",
    [
        "x-request-timeout-ms: 150",
        "X-Envoy-Expected-Rq-Timeout-Ms: 150",
        "grpc-timeout: 150m",
        "x-stainless-read-timeout: 0.15",
    ],
)
@virtual_scenario
async def test_a_request_that_waits_past_its_deadline_is_answered_and_never_sent(
    field: str,
) -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        late = await asks(router, field, tag="late")
        patient = await asks(router, tag="patient")
        answer = await late.recv_response()
        assert_error(answer, Reason.DEADLINE_PASSED, 408)
        assert int(answer.header("retry-after") or 0) >= 1
        assert answer.error()["type"] == "invalid_request_error"
        assert waiting(router) == 1
        assert counts(router, "expired")[NORMAL] == 1
        turnstile.open(3)
        for client in (first, patient):
            assert (await client.recv_response()).status == 200
        await late.send(chat(tag="again"))  # the refused client's connection is still usable
        assert (await late.recv_response()).status == 200
        assert turnstile.tags == ["first", "patient", "again"]


@virtual_scenario
async def test_an_expired_stream_gets_an_error_status() -> None:
    turnstile = Turnstile()
    timeouts = {"commit_after_s": 0.1}
    async with running(turnstile, replica=ONE, queue=queue(), timeouts=timeouts) as router:
        first = await send(router, "first", queued=False)
        late = await asks(router, "x-request-timeout-ms: 1500", stream=True)
        assert_error(await late.recv_response(), Reason.DEADLINE_PASSED, 408)
        turnstile.open()
        assert (await first.recv_response()).status == 200


@pytest.mark.parametrize("value", ["0", "-30"])
@virtual_scenario
async def test_one_that_comes_too_late_is_refused_at_once(value: str) -> None:
    async with running(json_ok, queue=queue()) as router:
        answer = await router.ask(chat(f"x-request-timeout-ms: {value}"), "POST")
        assert_error(answer, Reason.DEADLINE_PASSED, 408)
        assert answer.header("retry-after") == "1"
        assert router.replica.requests == []
        assert sum(counts(router, "queued")) == 0
        assert await router.reason() == "deadline_passed"


@pytest.mark.parametrize("value", ["soon", "10s", "1e9", "", "inf"])
@virtual_scenario
async def test_what_is_no_time_is_refused_with_what_is(value: str) -> None:
    async with running(json_ok, queue=queue()) as router:
        answer = await router.ask(chat(f"x-request-timeout-ms: {value}"), "POST")
        assert_error(answer, Reason.BAD_HEADER, 400)
        assert "x-request-timeout-ms must be milliseconds" in answer.error()["message"]
        assert router.replica.requests == []


@virtual_scenario
async def test_a_head_that_is_remembered_says_the_same_again() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        clients = [await asks(router, "x-request-timeout-ms: 150") for _ in range(3)]
        assert len(router.app.parts.front.plans.found) == 2
        for client in clients:
            assert_error(await client.recv_response(), Reason.DEADLINE_PASSED)
        turnstile.open()
        assert (await first.recv_response()).status == 200


@virtual_scenario
async def test_the_deadline_header_is_not_forwarded_and_other_timeout_headers_are() -> None:
    async with running(json_ok, queue=queue()) as router:
        fields = ("x-request-timeout-ms: 5000", "grpc-timeout: 5S", "x-stainless-timeout: 600")
        assert (await router.ask(chat(*fields), "POST")).status == 200
        assert (await router.ask(request("/plain", *fields))).status == 200
        for seen in router.replica.requests:
            assert seen.header("x-request-timeout-ms") is None
            assert (seen.header("grpc-timeout"), seen.header("x-stainless-timeout")) == (
                "5S",
                "600",
            )


@pytest.mark.parametrize("streams", [False, True])
@virtual_scenario
async def test_an_sdks_time_is_for_a_first_byte_and_may_be_ignored(streams: bool) -> None:
    """A waiting stream gets comments, after which the SDK restarts its timeout."""
    turnstile = Turnstile()
    rules = queue(sdk_timeouts=streams)
    async with running(turnstile, replica=ONE, queue=rules) as router:
        first = await send(router, "first", queued=False)
        second = await asks(router, "x-stainless-read-timeout: 0.1", stream=streams)
        await asyncio.sleep(0.3)
        assert waiting(router) == 1
        turnstile.open(2)
        for client in (first, second):
            assert (await client.recv_response()).status == 200


@virtual_scenario
async def test_it_holds_for_the_first_content_and_blames_no_replica() -> None:
    rules = {"eject_after": 1, "eject_share": 1.0}
    async with running(hang, hang, queue=queue(), health=rules, policy="round_robin") as router:
        for stream in (False, True):
            answer = await router.ask(chat("x-request-timeout-ms: 150", stream=stream), "POST")
            assert_error(answer, Reason.DEADLINE_PASSED, 408)
            assert answer.header("retry-after") == "1"
        lines = await router.log(2)
        assert [line["reason"] for line in lines] == ["deadline_passed"] * 2
        assert [line["attempts"] for line in lines] == [1, 1]
        fleet = router.app.parts.fleet
        assert len(fleet.serving.ready) == 2
        for hostile in router.replicas:
            await hostile.wait_for_sessions(1)
            await eventually(partial(all_ended, hostile), "the engine is told")


@virtual_scenario
async def test_nothing_is_sent_again_after_it() -> None:
    """The first attempt failed on time; the pause before a second one is longer than the time
    left.
    """
    later = answer(json_response({"error": {"message": "later"}}, 503))
    retry = {"backoff_s": 30.0, "backoff_max_s": 30.0}
    async with running(later, later, queue=queue(), retry=retry) as router:
        router.app.parts.context._rng.random = lambda: 1.0  # type: ignore[method-assign]
        told = await router.ask(chat("x-request-timeout-ms: 400"), "POST")
        assert_error(told, Reason.DEADLINE_PASSED, 408)
        assert sum(len(replica.requests) for replica in router.replicas) == 1


@virtual_scenario
async def test_the_time_in_the_queue_counts() -> None:
    """The request gets a replica on time, but the replica has only the rest of the time to
    answer.
    """
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        second = await asks(router, "x-request-timeout-ms: 1500", tag="second")
        await asyncio.sleep(0.1)
        turnstile.open()
        assert (await first.recv_response()).status == 200
        await eventually(lambda: turnstile.tags == ["first", "second"], "it is sent")
        assert_error(await second.recv_response(), Reason.DEADLINE_PASSED, 408)
        assert sum(counts(router, "expired")) == 0
        assert (await router.log(2))[1]["attempts"] == 1


@virtual_scenario
async def test_a_role_is_no_content() -> None:
    async with running(stream_then_hang(role()), queue=queue()) as router:
        answer = await router.ask(chat("x-request-timeout-ms: 150", stream=True), "POST")
        assert_error(answer, Reason.DEADLINE_PASSED)


@virtual_scenario
async def test_what_has_begun_goes_on() -> None:
    async def slow(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, chunk(token("a")))
        await asyncio.sleep(1.4)
        await connection.send(chunk(token("b")), chunk(DONE), LAST_CHUNK)

    async with running(slow, queue=queue()) as router:
        answer = await router.ask(chat("x-request-timeout-ms: 1000", stream=True), "POST")
        assert answer.complete
        assert answer.events()[-1] == "[DONE]"


@virtual_scenario
async def test_the_class_may_be_less_patient() -> None:
    turnstile = Turnstile()
    classes = of_normal(wait_s=0.2, starvation_s=0.1)
    async with running(turnstile, replica=ONE, queue=queue(), classes=classes) as router:
        first = await send(router, "first", queued=False)
        second = await asks(router, "x-request-timeout-ms: 60000")
        assert_error(await second.recv_response(), Reason.QUEUE_TIMEOUT)
        turnstile.open()
        assert (await first.recv_response()).status == 200


@virtual_scenario
async def test_without_a_queue_it_holds_all_the_same() -> None:
    async with running(hang, queue=Queue(enabled=False)) as router:
        for value in ("0", "150"):
            answer = await router.ask(chat(f"x-request-timeout-ms: {value}"), "POST")
            assert_error(answer, Reason.DEADLINE_PASSED, 408)


@virtual_scenario
async def test_the_nearest_deadline_goes_first_where_that_is_the_order() -> None:
    turnstile = Turnstile()
    rules = Queue(enabled=True, policy="edf")
    async with running(turnstile, replica=ONE, queue=rules) as router:
        clients = [await send(router, "first", queued=False)]
        for tag, fields in (("none", ()), ("nine", (NINE,)), ("eight", (EIGHT,))):
            clients.append(await asks(router, *fields, tag=tag, priority="low"))
        turnstile.open(4)
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == ["first", "eight", "nine", "none"]


@pytest.mark.parametrize("policy", ["edf", "slide"])
@virtual_scenario
async def test_a_near_deadline_jumps_no_class(policy: str) -> None:
    """Any client can set a deadline."""
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=Queue(enabled=True, policy=policy)) as router:
        clients = [await send(router, "first", queued=False)]
        clients.append(await asks(router, tag="normal"))
        near = "x-request-timeout-ms: 1500"
        clients.append(await asks(router, near, tag="low", priority="low"))
        turnstile.open(3)
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == ["first", "normal", "low"]


@virtual_scenario
async def test_a_reload_changes_whose_deadlines_are_used() -> None:
    async with running(hang, queue=queue()) as router:
        app = router.app
        data = chat("x-stainless-timeout: 0.1")
        assert_error(await router.ask(data, "POST"), Reason.DEADLINE_PASSED)
        router.change(queue=queue(sdk_timeouts=False))
        await app.reload()
        await router.send(data)
        await asyncio.sleep(0.4)
        (exchange,) = app.parts.dispatcher.exchanges
        assert exchange.deadlines.client_deadline == float("inf")
