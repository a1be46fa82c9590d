"""No file descriptor for a client: no busy loop, and service continues when some are free again."""

import asyncio
import socket
import time

from tests.harness.behaviours import json_ok
from tests.harness.client import RawClient
from tests.harness.messages import chat
from tests.harness.running import Router, no_files_left, routed


@routed(json_ok)
async def test_it_backs_off_and_recovers(router: Router) -> None:
    assert (await router.ask(chat())).status == 200
    waiting = []
    for _ in range(3):
        sock = socket.socket()
        sock.setblocking(False)
        waiting.append(sock)
    with no_files_left(spare=True):
        for sock in waiting:
            sock.connect_ex(("127.0.0.1", router.port))
        spent = time.process_time()
        for _ in range(10):
            await asyncio.sleep(0.05)
        spent = time.process_time() - spent
        assert spent < 0.25, f"{spent:.2f} s of CPU in half a second of having no files"
    clients = [RawClient(sock) for sock in waiting]
    router.clients += clients
    for client in clients:
        await client.send_pieces([chat()])
        while not client.unread and await client.fill():
            pass
        # A shed connection may have been closed. No client hangs, and none gets an error.
        assert client.unread.startswith(b"HTTP/1.1 200 ") or (client.ended and not client.unread), (
            client
        )
    assert (await router.ask(chat())).status == 200
