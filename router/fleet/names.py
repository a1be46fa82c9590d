"""The data plane's resolvers, for aiohttp: every question to a replica goes where requests go.

Must never: ask a name server where the data plane has a resolver, which keeps its last answer.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from aiohttp.abc import AbstractResolver, ResolveResult

from router.fleet.resolve import Resolve, Resolver


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
