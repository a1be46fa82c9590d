"""No ephemeral port for a replica connection: 503 `no_ports`, and no replica failure is counted."""

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from router.core.errors import Reason
from tests.faults.process.metrics import number
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, routed, running, scenario


@contextmanager
def no_ports_left(*ports: int) -> Iterator[list[int]]:
    """Connects to these ports fail with the kernel's error; yields the attempts.

    Using up the machine's ephemeral ports for real would affect all its processes.
    """
    loop: Any = asyncio.get_running_loop()
    connect = loop.create_connection
    tried: list[int] = []

    async def create_connection(
        factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        if port in ports:
            tried.append(port)
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        return await connect(factory, host, port, **more)

    loop.create_connection = create_connection
    try:
        yield tried
    finally:
        loop.create_connection = connect


def states(router: Router) -> list[str]:
    return [shown["state"] for shown in router.app.replicas()]


@pytest.mark.parametrize("count", [1, 3])
@scenario
async def test_it_is_our_shortage(count: int) -> None:
    async with running(*[json_ok] * count, health={"eject_after": 1}) as router:
        with no_ports_left(*(replica.port for replica in router.replicas)) as tried:
            for stream in (False, True, False):
                answer = await router.ask(chat(stream=stream))
                assert_error(answer, Reason.NO_PORTS, 503)
                assert answer.header("retry-after")
            # A connect would fail for other replicas as well: one attempt per request
            assert len(tried) == 3
            assert states(router) == ["ready"] * count
            assert [shown["failures_in_a_row"] for shown in router.app.replicas()] == [0] * count
        for _ in range(count):
            assert (await router.ask(chat())).status == 200
        lines = await router.log(3 + count)
        assert [line["reason"] for line in lines] == ["no_ports"] * 3 + ["ok"] * count


@routed(json_ok)
async def test_open_connections_go_on(router: Router) -> None:
    client = await router.send(chat())
    assert (await client.recv_response()).status == 200
    with no_ports_left(router.replica.port) as tried:
        for _ in range(5):
            await client.send(chat())
            assert (await client.recv_response()).status == 200
    assert tried == []


@routed(json_ok)
async def test_it_shows_in_the_metrics(router: Router) -> None:
    with no_ports_left(router.replica.port):
        await router.ask(chat())
    await eventually(lambda: bool(router.lines()), "the line")
    ends = {"kind": "chat", "reason": "no_ports", "status": "503"}
    assert await number(router.app.admin_port, "hedgerow_requests_total", **ends) == 1
