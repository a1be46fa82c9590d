"""Maps a client address to the address or network by which the router counts that client.

An IPv6 client owns a whole /64 network and may change its address within this network at any time.
So all addresses of one /64 network count as one client. An IPv4 address that is written as IPv6
(::ffff:a.b.c.d) counts as an IPv4 address.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_NETWORK: Final = 64  # Leading bits of an IPv6 address that identify its client.


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
