"""The data plane's resolvers, for aiohttp: every question to a replica goes where requests go.

Must never: ask a name server where the data plane has a resolver, which keeps its last answer.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from router.fleet.resolve import Resolve, Resolver


def connector(
    known: Mapping[str, Resolve], *, limit: int = 0, idle_s: float | None = None
) -> TCPConnector:
    """Connections for an aiohttp session, by the resolvers in `known`, by host.

    `limit`: connections at once; 0: no limit. `idle_s`: seconds for which an idle connection is
    kept; None: each is closed after its answer.
    """
    return TCPConnector(
        limit=limit,
        keepalive_timeout=idle_s,
        force_close=idle_s is None,
        resolver=Names(known),
        use_dns_cache=False,
    )


class Names(AbstractResolver):
    """Gives the addresses that the resolvers in `known` give, by host."""

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
        """Nothing is open."""
