"""Finds the region of a client's network in the configured networks.

If several networks contain an address, the network with the longest prefix decides. The router
identifies an IPv6 client by its /64 network, so a longer IPv6 prefix matches its whole /64.

Pure. Must never: limit the regions to which a request may be sent; `Allowed` does this.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from router.core.client_address import address_in, counted_network

_MEMO: Final = 4096  # Maximum number of cached addresses; a full table is cleared.


class NetworkRegions:
    """The regions of client networks."""

    __slots__ = ("_known", "_networks", "is_used")

    def __init__(self, networks: Mapping[str, str]) -> None:
        """`networks`: the region of each network, such as 10.0.0.0/8."""
        found: list[tuple[int, IPv4Network | IPv6Network, str]] = []
        for text, region in networks.items():
            network = counted_network(text)
            found.append((network.prefixlen, network, region))
        found.sort(key=_length, reverse=True)
        self._networks = found
        self._known: dict[str, str] = {}
        self.is_used = len(found) > 0

    def of(self, client: str) -> str:
        """Return the region of a client address; "": no network contains the address.

        The address has the form that `Addresses.of` returns.
        """
        region = self._known.get(client)
        if region is None:
            if len(self._known) >= _MEMO:
                self._known.clear()
            region = self._known[client] = self._find(client)
        return region

    def _find(self, client: str) -> str:
        address = address_in(client)
        if address is not None:
            for _, network, region in self._networks:
                if address in network:
                    return region
        return ""


def _length(network: tuple[int, IPv4Network | IPv6Network, str]) -> int:
    return network[0]
