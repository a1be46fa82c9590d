"""The TLS handshake of an accepted connection. It begins in the callback that accepts the
connection.

A server with `ssl` reports a connection only after its handshake, so half-open connections would
not be counted. Here the client connection is created first, so it is counted and may be closed to
make room. TLS is then inserted below it before a byte is read. This needs no task, because the
first step of a task would run too late.

Must never: let a byte of the connection pass unencrypted.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any


class Handshake:
    """One TLS handshake.

    `done` receives the transport to use afterwards; None if the handshake failed.
    """

    __slots__ = ("_done", "_steps")

    def __init__(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        context: ssl.SSLContext,
        timeout_s: float,
        done: Callable[[asyncio.Transport | None], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._done = done
        self._steps: Coroutine[Any, Any, asyncio.Transport | None] = loop.start_tls(
            transport, protocol, context, server_side=True, ssl_handshake_timeout=timeout_s
        )
        self._go_on(None)

    def _go_on(self, _: object) -> None:
        """Run the coroutine as a task would, but begin at once."""
        try:
            waiter = self._steps.send(None)
        except StopIteration as end:
            self._done(end.value)
        except (OSError, asyncio.CancelledError):  # ssl.SSLError is a subclass
            self._done(None)
        else:
            waiter._asyncio_future_blocking = False
            waiter.add_done_callback(self._go_on)
