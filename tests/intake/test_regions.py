"""The region of a client's network."""

import pytest

from router.intake.address import Addresses
from router.intake.regions import NetworkRegions

NETWORKS = NetworkRegions(
    {
        "10.0.0.0/8": "eu",
        "10.1.0.0/16": "us",
        "2001:db8::/32": "asia",
        "2001:db8:1:2:3::/80": "lab",
    }
)


@pytest.mark.parametrize(
    ("address", "region"),
    [
        ("10.2.3.4", "eu"),
        ("10.1.3.4", "us"),
        ("::ffff:10.1.3.4", "us"),
        ("192.0.2.1", ""),
        ("2001:db8:9::1", "asia"),
        ("2001:db8:1:2::1", "lab"),
        ("a batch line", ""),
        ("", ""),
    ],
)
def test_the_longest_prefix_decides(address: str, region: str) -> None:
    counted = Addresses().of(address, None)
    assert NETWORKS.of(counted) == region
    assert NETWORKS.of(counted) == region, "the second answer comes from the cache"


def test_without_networks_nothing_is_looked_up() -> None:
    assert not NetworkRegions({}).is_used
    assert NETWORKS.is_used


def test_addresses_cost_no_memory_without_end() -> None:
    networks = NetworkRegions({"10.0.0.0/8": "eu"})
    for number in range(9000):
        networks.of(f"10.{number % 256}.{number // 256}.1")
    assert len(networks._known) <= 4096
