"""The address that limits count by: IPv6 by /64, IPv4 in one spelling."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network

import pytest
from hypothesis import given, strategies as st

from router.core.client_address import (
    address_in,
    counted,
    counted_network,
    counted_peer,
)


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


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**64 - 1))
def test_an_ipv6_client_cannot_leave_its_64(number: int, lower: int) -> None:
    address = IPv6Address(number)
    neighbour = IPv6Address(number >> 64 << 64 | lower)
    assert counted(address) == counted(neighbour)
    assert address in IPv6Network(counted(address))
    beyond = IPv6Address(number ^ 1 << 64)
    assert counted(beyond) != counted(address)


@pytest.mark.parametrize(
    ("network", "counted_as"),
    [
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("10.1.2.3", "10.1.2.3/32"),
        ("2001:db8::/48", "2001:db8::/48"),
        ("2001:db8::7/128", "2001:db8::/64"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::/0", "::/0"),
    ],
)
def test_a_network_contains_the_clients_that_it_names(network: str, counted_as: str) -> None:
    assert str(counted_network(network)) == counted_as


@given(st.ip_addresses())
def test_a_client_is_in_its_own_network(address: IPv4Address | IPv6Address) -> None:
    found = address_in(counted_peer(str(address)))
    assert found is not None
    assert found in counted_network(str(address))
    assert address_in("-") is address_in("") is None
