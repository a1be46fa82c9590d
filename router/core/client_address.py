"""How client addresses are counted.

An IPv6 client owns a whole /64 and may change its address within it at any time, so IPv6 addresses
count by /64. An IPv4 address that is written as IPv6 (::ffff:a.b.c.d) counts as IPv4.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_NETWORK: Final = 64  # bits of an IPv6 address that name its client


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    """The address in a text; None: the text is no address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def counted(address: IPv4Address | IPv6Address) -> str:
    """What the address counts as."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address), _NETWORK), strict=False))
    return str(address)


def counted_peer(peer: str) -> str:
    """What a peer counts as; one that is no IP address counts as itself."""
    address = parsed(peer)
    return peer if address is None else counted(address)
