"""Resolves host names and caches the addresses, so that a DNS outage makes no replica unreachable.

The answer of a name server is used for `TTL_S` seconds. If the next lookup fails or returns
nothing, the old addresses are still used. Lookups run in the event loop's thread pool. So a name
server that does not answer delays only new connections to the host that is looked up, and the
connect timeout limits the delay.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from router.core.clock import monotonic

TTL_S = 30.0
PATIENCE_S = 0.5  # Timeout of a lookup in seconds while earlier addresses of the host are known.
MOST: Final = 16_384  # Maximum number of hosts in one dict that `remember` fills.

# A function that returns the addresses of one host; it raises OSError if no address is known.
Resolve = Callable[[], Awaitable[list[str]]]


def remember(names: dict[str, Resolve], host: str, resolve: Resolve | None) -> None:
    """Store the resolver of a host, if the host has one.

    Beyond `MOST` hosts, the entry stored longest ago is dropped.
    """
    if resolve is None:
        return
    names.pop(host, None)
    names[host] = resolve
    if len(names) > MOST:
        del names[next(iter(names))]


class Resolver:
    """The addresses of one host, resolved and cached."""

    __slots__ = ("_asked_at", "_host", "_known", "_on_failure")

    def __init__(self, host: str, on_failure: Callable[[str, str], None]) -> None:
        self._host = host
        self._known: list[str] = []
        self._asked_at = 0.0
        self._on_failure = on_failure  # Callback for a failed lookup; arguments: host, error text.
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            self._known = [host]
            self._asked_at = float("inf")

    async def __call__(self) -> list[str]:
        """Return the addresses to try, in order.

        Raises OSError only if no address was ever known.
        """
        now = monotonic()
        if self._known and now - self._asked_at < TTL_S:
            return self._known
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE_S if self._known else None):
                found = await loop.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
            if not addresses:
                raise OSError(f"{self._host} has no address")
        except OSError as err:
            if not self._known:
                raise
            self._on_failure(self._host, str(err))
        else:
            self._known = addresses
        self._asked_at = now
        return self._known
