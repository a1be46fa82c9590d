"""Makes aiohttp use the data plane's resolvers, so that probes, polls and requests use the same
addresses.

Must never: ask a name server for a host that has a resolver of the data plane, which caches the
last answer.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from router.fleet.monitor.resolve import Resolve, Resolver


def connector(
    known: Mapping[str, Resolve], *, limit: int = 0, idle_s: float | None = None
) -> TCPConnector:
    """Return a connector for an aiohttp session. `known`: host -> its resolver.

    `limit`: maximum number of connections; 0 means no limit. `idle_s`: seconds for which an idle
    connection is kept; `None` closes each connection after its answer.
    """
    return TCPConnector(
        limit=limit,
        keepalive_timeout=idle_s,
        force_close=idle_s is None,
        resolver=Names(known),
        use_dns_cache=False,
    )


class Names(AbstractResolver):
    """An aiohttp resolver that returns the addresses of the resolvers in `known` (host ->
    resolver)."""

    def __init__(self, known: Mapping[str, Resolve]) -> None:
        self._known = known

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises OSError if the host has no address and never had one."""
        resolve = self._known.get(host) or Resolver(host, lambda host, why: None)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await resolve()
        ]

    async def close(self) -> None:
        """Do nothing: this resolver holds no open resource."""
