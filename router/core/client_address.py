"""Maps a client address to the address or network by which the router counts that client.

An IPv6 client owns a whole /64 network and may change its address within this network at any time.
So all addresses of one /64 network count as one client. An IPv4 address that is written as IPv6
(::ffff:a.b.c.d) counts as an IPv4 address.
"""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

_NETWORK: Final = 64  # Leading bits of an IPv6 address that identify its client.
_MAPPED: Final = 96  # Leading bits of an IPv6 address before the IPv4 address that it contains.


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address; `None` if the text is not an address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def counted(address: IPv4Address | IPv6Address) -> str:
    """Return the address or network, as text, by which a client address is counted."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address), _NETWORK), strict=False))
    return str(address)


def counted_peer(peer: str) -> str:
    """Return the text by which the peer of a connection is counted.

    The result is `peer` itself if `peer` is not an IP address.
    """
    address = parsed(peer)
    return peer if address is None else counted(address)


def counted_network(text: str) -> IPv4Network | IPv6Network:
    """Parse a network of clients, such as 10.0.0.0/8, for the comparison with `address_in`.

    An IPv6 client is counted by its /64, so a longer IPv6 prefix becomes its whole /64. Raises
    ValueError if the text is not a network.
    """
    network = ip_network(text, strict=False)
    if isinstance(network, IPv6Network) and network.prefixlen > _NETWORK:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None and network.prefixlen >= _MAPPED:
            return IPv4Network((int(mapped), network.prefixlen - _MAPPED))
        return network.supernet(new_prefix=_NETWORK)
    return network


def address_in(text: str) -> IPv4Address | IPv6Address | None:
    """Return the first address of a counted client; `None` if the text is not an address."""
    return parsed(text.partition("/")[0])
