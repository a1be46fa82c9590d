"""Finds the client address of a request: the peer's, or the address that a trusted proxy forwards.

X-Forwarded-For is used only if the peer is a trusted proxy. The field is read from the right,
because each proxy appends the address of its own peer. The first address that is not a trusted
proxy is the client. All addresses to the left of the client's address are ignored, because the
client may have written them.

Memory is bounded: results are cached for a limited number of short values.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

from router.core.client_address import counted, counted_peer, parsed

_MEMO: Final = 4096  # maximum number of cached values in each table; a full table is cleared
_LONGEST: Final = 256  # maximum bytes of a header field that is cached
_HOPS: Final = 32  # maximum number of addresses that are read from one header field


class Addresses:
    """Finds client addresses, with one set of trusted proxies."""

    __slots__ = ("_by_field", "_by_peer", "_networks", "_trusted")

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        """`trusted`: the networks of the proxies whose X-Forwarded-For is used."""
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(text, strict=False) for text in trusted
        ]
        self._trusted: dict[str, bool] = {}
        self._by_peer: dict[str, str] = {}
        self._by_field: dict[bytes, str] = {}

    def is_trusted(self, peer: str) -> bool:
        """Return whether the peer is a proxy whose X-Forwarded-For is trusted."""
        if not self._networks:
            return False
        found = self._trusted.get(peer)
        if found is None:
            address = parsed(peer)
            found = address is not None and self._is_proxy(address)
            if len(self._trusted) >= _MEMO:
                self._trusted.clear()
            self._trusted[peer] = found
        return found

    def of(self, peer: str, forwarded_for: bytes | None) -> str:
        """Return the client address of a request from `peer`, in one normal spelling."""
        if forwarded_for is not None and self.is_trusted(peer):
            found = self._by_field.get(forwarded_for)
            if found is None:
                found = self._client_in(forwarded_for)
                if len(forwarded_for) <= _LONGEST:
                    if len(self._by_field) >= _MEMO:
                        self._by_field.clear()
                    self._by_field[forwarded_for] = found
            if found:
                return found
        own = self._by_peer.get(peer)
        if own is None:
            own = counted_peer(peer)
            if len(self._by_peer) >= _MEMO:
                self._by_peer.clear()
            self._by_peer[peer] = own
        return own

    def _client_in(self, forwarded_for: bytes) -> str:
        """Return the first address from the right that is not a trusted proxy.

        If all addresses are trusted proxies, returns the leftmost; "" if there is no valid address.
        """
        found = ""
        entries = forwarded_for.rsplit(b",", _HOPS)[-_HOPS:]
        for entry in reversed(entries):
            address = parsed(_host(entry.decode("ascii", "replace").strip()))
            if address is None:
                break  # the addresses to the left of an invalid entry cannot be trusted
            found = counted(address)
            if not self._is_proxy(address):
                break
        return found

    def _is_proxy(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._networks)


def _host(entry: str) -> str:
    """Return an address without the port that some proxies append."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    if entry.count(":") == 1:
        return entry.partition(":")[0]
    return entry
