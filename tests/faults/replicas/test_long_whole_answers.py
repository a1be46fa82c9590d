"""Whole answers have their own time limit, and exceeding this limit is no failure of a working
replica.
"""

import asyncio
import json

import pytest

from router.config.model import Classes, ClassTimeouts, HighClass
from router.core.errors import Reason
from tests.harness.behaviours import answer_after, hang, until_closed
from tests.harness.messages import SSE_HEAD, chat, chunk, completion, token
from tests.harness.replica import ReplicaConnection
from tests.harness.running import Router, assert_error, routed, running, scenario

FIRM = {"eject_after": 1, "eject_share": 1.0}


# A whole answer, later than the limit for a stream's first token.
slow = answer_after(0.9, completion())


async def streams_only(connection: ReplicaConnection) -> None:
    """Stream a token now and then until the client disconnects; never send a whole answer."""
    asked = await connection.recv_request()
    assert asked is not None
    if json.loads(asked.body).get("stream"):
        await connection.send(SSE_HEAD)
        while not connection.ended:
            await connection.send(chunk(token()))
            await asyncio.sleep(0.02)
    await until_closed(connection)


def fit(router: Router) -> int:
    return len(router.app.parts.fleet.serving.ready)


@routed(slow, slow, timeouts={"first_token_s": 0.3}, health=FIRM)
async def test_it_may_take_longer_than_a_first_token(router: Router) -> None:
    for _ in range(2):
        assert (await router.ask(chat(), "POST")).status == 200
    assert fit(router) == 2


@scenario
async def test_its_own_limit_is_a_504_with_its_own_reason_and_blames_no_replica_that_works() -> (
    None
):
    two = (streams_only, streams_only)
    timeouts = {"whole_s": 0.3}
    async with running(*two, policy="round_robin", timeouts=timeouts, health=FIRM) as router:
        streams = [await router.client() for _ in two]
        for client in streams:
            await client.send(chat(stream=True))
            await client.recv_until(b'"token"')
        for _ in range(4):
            answer = await router.ask(chat(), "POST")
            assert_error(answer, Reason.WHOLE_TIMEOUT, 504)
            assert "answer" in answer.error()["message"]
        assert fit(router) == 2
        assert [r.health.failures for r in router.app.parts.fleet.replicas.values()] == [0, 0]
        lines = await router.log(4)
        assert [line["reason"] for line in lines] == ["whole_timeout"] * 4
        assert [line["attempts"] for line in lines] == [1] * 4, "it is not sent again"


@routed(hang, hang, timeouts={"whole_s": 0.3}, health=FIRM)
async def test_a_replica_without_any_sign_of_work_is_blamed(router: Router) -> None:
    assert_error(await router.ask(chat(), "POST"), Reason.WHOLE_TIMEOUT)
    assert fit(router) == 1


@pytest.mark.parametrize(
    "field",
    ["x-stainless-timeout: 600", "x-stainless-read-timeout: 600.0", "x-request-timeout-ms: 600000"],
)
@routed(slow, timeouts={"whole_s": 0.3}, health=FIRM)
async def test_a_client_that_waits_longer_is_not_cut_off(router: Router, field: str) -> None:
    assert (await router.ask(chat(field), "POST")).status == 200
    assert (await router.log())[0]["reason"] == "ok"


@routed(hang, timeouts={"whole_s": 60.0}, health=FIRM)
async def test_a_client_with_a_shorter_timeout_is_answered_at_it(router: Router) -> None:
    answer = await router.ask(chat("x-stainless-timeout: 0.3"), "POST")
    assert_error(answer, Reason.DEADLINE_PASSED, 408)


@scenario
async def test_a_class_may_have_its_own() -> None:
    classes = Classes(high=HighClass(timeouts=ClassTimeouts(whole_s=0.3)))
    async with running(slow, classes=classes, health=FIRM) as router:
        assert_error(await router.ask(chat(priority="high"), "POST"), Reason.WHOLE_TIMEOUT)
        assert (await router.ask(chat(), "POST")).status == 200
