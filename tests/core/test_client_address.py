"""The address that limits count by: IPv6 by /64, IPv4 in one spelling."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.client_address import counted, counted_peer, parsed


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::FFFF:c000:207", "192.0.2.7"),
        ("2001:DB8:0:0:9::1", "2001:db8::/64"),
        ("2001:db8:0:1::", "2001:db8:0:1::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::192.0.2.7", "::/64"),  # the obsolete form, not a mapped address
    ],
)
def test_an_address_counts_in_one_spelling(text: str, name: str) -> None:
    assert counted_peer(text) == name


@pytest.mark.parametrize(
    "text",
    ["", "-", "host", "/run/a.sock", "192.0.2", "192.0.2.256", "010.0.0.1", "[::1]", "1.2.3.4:80"],
)
def test_a_peer_without_an_ip_address_counts_as_itself(text: str) -> None:
    assert parsed(text) is None
    assert counted_peer(text) == text


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**64 - 1))
def test_an_ipv6_client_cannot_leave_its_64(number: int, lower: int) -> None:
    address = IPv6Address(number)
    neighbour = IPv6Address(number >> 64 << 64 | lower)
    assert counted(address) == counted(neighbour)
    assert address in IPv6Network(counted(address))
    beyond = IPv6Address(number ^ 1 << 64)
    assert counted(beyond) != counted(address)


@given(st.integers(0, 2**32 - 1))
def test_ipv4_is_the_same_written_as_ipv6(number: int) -> None:
    address = IPv4Address(number)
    mapped = str(IPv6Address(0xFFFF << 32 | number))
    assert counted_peer(mapped) == counted_peer(str(address)) == str(address)


@given(st.text(max_size=40))
def test_any_text_counts(text: str) -> None:
    name = counted_peer(text)
    if parsed(text) is None:
        assert name == text
