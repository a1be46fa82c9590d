"""A client that sends no head, or sends it very slowly, is closed by one timer, at no other
cost.
"""

import asyncio

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.running import Router, assert_error, routed, running, virtual_scenario
from tests.harness.virtual_time import takes


@virtual_scenario
async def test_a_silent_connection_needs_no_task_and_is_closed() -> None:
    quiet = "a probe under way is a task"
    async with running(json_ok, quiet_control_plane=quiet) as router:
        before = len(asyncio.all_tasks())
        clients = [await router.client() for _ in range(50)]
        await asyncio.sleep(0.001)  # the loop accepts them
        assert len(asyncio.all_tasks()) <= before
        for client in clients:
            await client.expect_close()
            answers = bytes(client.received)
            assert answers == b"" or answers.startswith(b"HTTP/1.1 408 ")
        assert not router.replica.requests


@pytest.mark.parametrize("start", [b"G", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\nx:"])
@routed(json_ok, virtual=True)
async def test_half_a_head_is_answered_408(router: Router, start: bytes) -> None:
    client = await router.send(start)
    with takes(10.0):
        answer = await client.recv_response()
    assert_error(answer, Reason.HEAD_TIMEOUT)
    assert answer.header("connection") == "close"
    assert await client.expect_close()
    assert await router.reason() == "head_timeout"


@routed(json_ok, virtual=True)
async def test_single_bytes_do_not_extend_the_time(router: Router) -> None:
    drips = [await router.client() for _ in range(200)]

    async def drip() -> None:
        for byte in b"GET /" + b"a" * 1000:
            for client in drips:
                try:
                    await client.send(bytes([byte]))
                except OSError:
                    continue
            await asyncio.sleep(1.0)

    dripping = asyncio.create_task(drip())
    try:
        for _ in range(5):  # other clients are served in the meantime
            assert (await router.ask(chat())).status == 200
        with takes(10.0):
            await asyncio.gather(*(client.expect_close() for client in drips))
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


@routed(json_ok, virtual=True)
async def test_the_second_head_on_a_connection_has_the_same_limit(router: Router) -> None:
    client = await router.send(chat() + b"GET / HTTP/1.1\r\nHo")
    assert (await client.recv_response()).status == 200
    assert_error(await client.recv_response(), Reason.HEAD_TIMEOUT)
