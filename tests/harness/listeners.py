"""Addresses that do not answer: a closed port, a listener that accepts nothing, and a listener that
closes what it accepts.
"""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.harness.ports import free_port


def dead_url() -> str:
    """Return a URL at which no server listens."""
    return f"http://127.0.0.1:{free_port()}"


@contextmanager
def blackhole(port: int = 0) -> Iterator[str]:
    """A URL whose connects neither succeed nor fail: the listener's backlog stays full.

    `port`: where another listener was before.
    """
    listener = socket.socket()
    fillers = []
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for filler in fillers:
            filler.close()
        listener.close()


@contextmanager
def closer(port: int = 0, *, rst: bool) -> Iterator[str]:
    """A URL whose connections are closed when they are accepted, with a reset or with a FIN.

    `port`: where another listener was before.
    """
    loop = asyncio.get_running_loop()
    listener = socket.socket()

    def accept() -> None:
        with suppress(BlockingIOError):
            while True:
                sock, _ = listener.accept()
                if rst:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()

    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        listener.setblocking(False)
        loop.add_reader(listener, accept)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        loop.remove_reader(listener)
        listener.close()
