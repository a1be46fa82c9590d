"""Runs the TLS handshake of an accepted connection, in the callback that accepts the connection.

An asyncio server with `ssl` reports a connection only after its handshake, so connections whose
handshake is unfinished would not be counted. Here the protocol of the connection is created first.
So it counts as a connection and can be closed when connections are scarce. TLS is then inserted
below the protocol, before a byte is read. No task runs the handshake, because its first step would
run too late.

Must never: let a byte of the connection pass unencrypted.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any


class Handshake:
    """One TLS handshake.

    `done` is called with the encrypted transport, or with None if the handshake failed.
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
        """Runs the coroutine of the handshake, as a task would, but begins at once."""
        try:
            waiter = self._steps.send(None)
        except StopIteration as end:
            self._done(end.value)
        except (OSError, asyncio.CancelledError):  # ssl.SSLError is a subclass of OSError
            self._done(None)
        else:
            waiter._asyncio_future_blocking = False
            waiter.add_done_callback(self._go_on)
