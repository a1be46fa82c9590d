"""Many clients stop reading: the router's memory stays bounded, and other streams
continue.
"""

import asyncio
import os
import socket
from pathlib import Path

from tests.examples import ALL
from tests.faults.process.metrics import number
from tests.harness.client import RawClient
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.process import serving, write_config
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import scenario

SLOW = 200 if ALL else 60
PER_STREAM = 512 * 1024
SLACK = 4 * 1024 * 1024  # bytes of the allocator; the cost of the first request is excluded
PIECE = chunk(token("x" * 60_000))
QUICK_TOKENS = 50


class Flood:
    """A replica that streams endlessly, as fast as it is read; `quick` streams are short and
    paced.
    """

    def __init__(self) -> None:
        self.sent = 0

    async def __call__(self, connection: ReplicaConnection) -> None:
        # The kernel's loopback buffers are not measured here: 4 MB per connection.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        loop = asyncio.get_running_loop()
        while asked := await connection.recv_request():
            await connection.send(SSE_HEAD)
            if b"quick" in asked.body:
                for index in range(QUICK_TOKENS):
                    await connection.send(chunk(token(f"q{index}")))
                    await asyncio.sleep(0.002)
                await connection.send(chunk(DONE), LAST_CHUNK)
                continue
            while True:
                await loop.sock_sendall(connection.sock, PIECE)
                self.sent += len(PIECE)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@scenario
async def test_memory_is_bounded(tmp_path: Path) -> None:
    flood = Flood()
    engine = HostileReplica(flood)
    engine.start()
    config = tmp_path / "config.yaml"
    write_config(config, engine.url, extra="access_log: {path: ''}\n")
    slow: list[RawClient] = []
    try:
        async with serving(config) as router:
            quick = await router.client()
            slow.append(quick)
            await quick.send(chat(stream=True, user="quick"))
            assert (await quick.recv_response()).complete
            before = resident_bytes(router.child.pid)
            for _ in range(SLOW):
                client = await RawClient.connect(router.port, receive_buffer=4096)
                slow.append(client)
                await client.send(chat(stream=True))
            for client in slow[1:]:
                await client.recv_until(b"xxx")
            most, last = 0, -1
            # Until the replica's writes block.
            while last != flood.sent or flood.sent <= SLOW * 64 * 1024:
                last = flood.sent
                await asyncio.sleep(0.15)
                most = max(most, resident_bytes(router.child.pid))
            await quick.send(chat(stream=True, user="quick"))
            answer = await quick.recv_response()
            assert answer.complete
            assert len(answer.events()) == QUICK_TOKENS + 1
            most = max(most, resident_bytes(router.child.pid))
            assert most - before <= SLOW * PER_STREAM + SLACK, (
                f"{(most - before) / SLOW / 1024:.0f} KiB a stream"
            )
            port = router.admin_port
            assert await number(port, "hedgerow_requests_under_way") == SLOW
            for client in slow:
                if not client.closed:
                    client.rst()
            await eventually(
                lambda: sum(not connection.closed for connection in engine.sessions) <= 1,
                "no replica connection left but the quick one's, which is pooled",
            )
            assert await number(port, "hedgerow_requests_under_way") == 0
    finally:
        for client in slow:
            client.close()
        await engine.stop()
