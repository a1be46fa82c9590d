"""A replica that accepts the request and sends no token: 504 on time, and its slot is released.

Headers are not a token: an engine sends them before it has computed anything.
"""

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import hang, stream_then_hang
from tests.harness.cases import Case
from tests.harness.messages import chat, event, post_json, role
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import (
    Router,
    assert_error,
    assert_error_event,
    routed,
    running,
    virtual_scenario,
)
from tests.harness.virtual_time import takes

SOON = {"first_token_s": 9.0, "whole_s": 9.0}  # before the early status
CREATED = event({"type": "response.created", "response": {"id": "resp_1"}})
MESSAGE_START = event({"type": "message_start", "message": {"id": "msg_1"}})


@pytest.mark.parametrize("stream", [False, True])
@virtual_scenario
async def test_no_byte_at_all(stream: bool) -> None:
    reason = Reason.TTFT_TIMEOUT if stream else Reason.WHOLE_TIMEOUT
    async with running(hang, timeouts=SOON, replica={"max_inflight": 1}) as router:
        for _ in range(2):  # the second request needs the slot that the first one has released
            assert_error(await router.ask(chat(stream=stream)), reason)
        await router.quiet()
        await eventually(
            lambda: all(connection.ended for connection in router.replica.sessions),
            "both connections to the replica closed",
        )
        assert {line["reason"] for line in await router.log(2)} == {reason.value}
        assert {line["attempts"] for line in router.lines()} == {1}


@pytest.mark.parametrize(
    "sent", [b": keep-alive\n\n", event({"choices": [], "usage": {}}), b"\n\n"]
)
@virtual_scenario
async def test_a_stream_without_content(sent: bytes) -> None:
    row = Case(
        replicas=(stream_then_hang(*([role(), sent] if sent else [])),),
        settings={"timeouts": SOON},
        asked=chat(stream=True),
        status=504,
        code="ttft_timeout",
        reason="ttft_timeout",
    )
    await row.check(repr(sent))


@pytest.mark.parametrize(
    ("path", "opening"),
    [("/v1/responses", CREATED), ("/v1/messages", MESSAGE_START)],
)
@virtual_scenario
async def test_a_stream_that_only_opens(path: str, opening: bytes) -> None:
    async with running(stream_then_hang(opening), timeouts=SOON) as router:
        asked = post_json(path, {"model": "m", "input": "hello", "stream": True})
        found = await router.ask(asked)
        assert (found.status, found.complete) == (504, True)
        assert found.json()["error"]["code"] == "ttft_timeout"


@virtual_scenario
async def test_half_a_json_answer() -> None:
    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        await connection.expect_close()

    async with running(behave, timeouts={"whole_s": 60.0}) as router:
        answer = await router.ask(chat())
        assert answer.status in (200, 504)
        assert answer.status == 504 or not answer.complete
        assert await router.reason() in ("whole_timeout", "token_gap_timeout")


@routed(hang, virtual=True)
async def test_a_client_that_waits_sees_comments_and_then_an_error_event(router: Router) -> None:
    with takes(300.0):
        answer = await router.ask(chat(stream=True))
    assert answer.status == 200
    assert (answer.header("content-type") or "").startswith("text/event-stream")
    assert_error_event(answer, Reason.TTFT_TIMEOUT)
    assert bytes(answer.body).startswith(b":")
    assert b"[DONE]" not in answer.body
    assert await router.reason() == "ttft_timeout"
