"""Addresses that do not answer: a closed port, and a listener that accepts nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

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
