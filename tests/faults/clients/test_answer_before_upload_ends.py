"""A replica that answers during the upload: its answer is relayed, and both connections close."""

import pytest

from tests.harness.behaviours import until_closed
from tests.harness.messages import head, json_response
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import running, scenario


@pytest.mark.parametrize("status", [413, 401])
@scenario
async def test_it_is_forwarded_at_once(status: int) -> None:
    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_head()
        await connection.send(json_response({"no": status}, status))
        await until_closed(connection)

    async with running(behave) as router:
        client = await router.client()
        size = 4 * 1024 * 1024
        await client.send(head("POST /upload HTTP/1.1", ["Host: a", f"Content-Length: {size}"]))
        sent = 0
        piece = bytes(64 * 1024)
        while sent < size and not router.replica.sessions:
            await client.send_pieces([piece])
            sent += len(piece)
        if sent >= size // 2 and not router.replica.sessions:
            # The router buffers a body before it dispatches: then there is no early answer.
            await client.send_pieces([piece] * ((size - sent) // len(piece)))
        answer = await client.recv_response()
        assert answer.status == status
        assert answer.json() == {"no": status}
        if sent < size:
            assert await client.expect_close()
        (connection,) = router.replica.sessions
        await eventually(lambda: connection.ended is not None, "the replica's connection closed")
