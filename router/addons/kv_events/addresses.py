"""Resolves host names in the ZMQ endpoints of one replica like the data plane does.

libzmq resolves a host name itself at each connect. It does not keep the last answer for a DNS
outage, and all sockets share its one I/O thread, so a slow name server would delay every
subscriber. Therefore ZMQ gets addresses only.

Must never: query a name server for a host that the replica's own resolver knows.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from router.config.address import join_host_port
from router.fleet.engines.common.publishers import Source
from router.fleet.monitor.resolve import Resolve, Resolver
from router.wire.pool import Address

_TCP = "tcp://"


class Addresses:
    """Resolves the host names in the KV event sources of one replica."""

    def __init__(self, own: Address) -> None:
        """`own`: the address to which the router sends the replica's requests."""
        self._own: dict[str, Resolve] = {} if own.resolve is None else {own.host: own.resolve}
        self._others: dict[str, Resolve] = {}  # resolvers of hosts that occur only in ZMQ endpoints

    def keep(self, sources: Iterable[Source]) -> None:
        """Drop the resolvers of hosts that these sources do not name."""
        hosts = {_split(e)[0] for source in sources for e in (source.endpoint, source.replay) if e}
        self._others = {host: its for host, its in self._others.items() if host in hosts}

    async def resolved(self, source: Source, used: Source | None, is_connected: bool) -> Source:
        """Return the source with addresses in place of host names. Raises OSError.

        `used`: the source that a subscriber uses now. While the subscriber is connected, it keeps
        its address, if the host name still resolves to it. Otherwise the next address of the host
        name is tried.
        """
        before = source if used is None else used
        endpoint = await self._resolve(source.endpoint, before.endpoint, is_connected)
        replay = source.replay
        if replay is not None:
            replay = await self._resolve(replay, before.replay or "", is_connected)
        return msgspec.structs.replace(source, endpoint=endpoint, replay=replay)

    async def _resolve(self, endpoint: str, used: str, is_connected: bool) -> str:
        host, port = _split(endpoint)
        if not host:
            return endpoint
        resolve = self._own.get(host) or self._others.get(host)
        if resolve is None:
            resolve = self._others[host] = Resolver(host, lambda host, why: None)
        found = await resolve()
        before = _split(used)[0]
        if before not in found:
            address = found[0]
        elif is_connected:
            address = before
        else:
            address = found[(found.index(before) + 1) % len(found)]
        return _TCP + join_host_port(address, port)


def _split(endpoint: str) -> tuple[str, int]:
    """Return host and port of a TCP endpoint created by `sources`; an empty host for `ipc://`."""
    if not endpoint.startswith(_TCP):
        return "", 0
    host, _, port = endpoint.removeprefix(_TCP).rpartition(":")
    return host.strip("[]"), int(port)
