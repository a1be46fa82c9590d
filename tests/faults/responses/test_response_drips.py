"""A response that arrives byte by byte is relayed as it arrives, head and body."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, completion, role, token
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, virtual_scenario

STREAM = SSE_HEAD + chunk(role()) + chunk(token("a")) + chunk(DONE) + LAST_CHUNK


def _bytes(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


@pytest.mark.parametrize("data", [STREAM, completion()], ids=["stream", "json"])
@virtual_scenario
async def test_it_comes_whole(data: bytes) -> None:
    tasks = 0

    async def behave(connection: ReplicaConnection) -> None:
        nonlocal tasks
        while await connection.recv_request():
            for index, byte in enumerate(_bytes(data)):
                await connection.send(byte)
                await asyncio.sleep(0)
                if index == len(data) // 2:
                    tasks = len(asyncio.all_tasks())

    async with running(behave, quiet_control_plane="a probe under way is a task") as router:
        before = len(asyncio.all_tasks())
        answer = await router.ask(chat(stream=data is STREAM))
        assert answer.complete
        assert answer.status == 200
        if data is STREAM:
            assert answer.body == role() + token("a") + DONE
        assert tasks <= before + 2  # the tasks of the replica, and none per byte
