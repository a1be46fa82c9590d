"""A worker whose parent ends before the worker serves."""

import asyncio
import os
import socket
import sys

import pytest

from router.app.process import _Process
from router.app.restart.messages import VARIABLE, Begin, FleetState, Go, Worker, line
from router.app.restart.predecessor import Predecessor
from router.app.workers.balance import make_shared
from router.config.model import Admin, Config, Replica
from tests.harness.running import scenario

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")
CONFIG = Config(
    listen="127.0.0.1:0",
    admin=Admin(listen="127.0.0.1:0"),
    replicas=(Replica(url="http://127.0.0.1:9", id="away"),),
)


@scenario
async def test_it_ends_although_it_was_allowed_to_serve() -> None:
    parent, conversation = socket.socketpair()
    parent_link, link = socket.socketpair()
    door, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    shared = make_shared(1)
    fds = link.detach(), door.detach(), (sender.detach(),)
    with parent:
        parent.setblocking(False)
        worker = Worker(0, *fds, shared, "", is_first=True)
        parent.send(line(Begin((), FleetState(), (), worker)))
        old = Predecessor.find({VARIABLE: str(conversation.detach())})
        process = asyncio.ensure_future(_Process(CONFIG, lambda: CONFIG, old, None).run())
        loop = asyncio.get_running_loop()
        assert b"Prepared" in await loop.sock_recv(parent, 1000)
        parent_link.close()
        await asyncio.sleep(0.1)
        parent.send(line(Go(FleetState())))
        async with asyncio.timeout(10.0):
            assert await process == 1
    for descriptor in (*fds[1:2], *fds[2], shared):
        os.close(descriptor)
    assert old is not None
    old.close()
