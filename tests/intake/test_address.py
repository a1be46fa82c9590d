"""The client address of a request: only a trusted proxy's X-Forwarded-For can replace the peer."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given, strategies as st

from router.intake import address
from router.intake.address import Addresses
from router.intake.flow import Flows

PROXY = "10.0.0.1"
TRUSTED = ("10.0.0.0/8", "fd00::/8")


@pytest.mark.parametrize(
    ("field", "client"),
    [
        (b"192.0.2.7", "192.0.2.7"),
        (b" 192.0.2.7 ", "192.0.2.7"),
        (b"198.51.100.1, 192.0.2.7", "192.0.2.7"),  # the client wrote what is left of it
        (b"192.0.2.7, 10.0.0.9", "192.0.2.7"),
        (b"192.0.2.7, 10.0.0.9, fd00::1", "192.0.2.7"),
        (b"10.0.0.8, 10.0.0.9", "10.0.0.8"),  # proxies only: the farthest of them
        (b"junk, 10.0.0.9", "10.0.0.9"),  # addresses to the left of junk cannot be trusted
        (b"192.0.2.7, junk, 10.0.0.9", "10.0.0.9"),
        (b"192.0.2.7:4711", "192.0.2.7"),
        (b"[2001:db8:1:2:3::4]:4711", "2001:db8:1:2::/64"),
        (b"2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        (b"::ffff:192.0.2.7", "192.0.2.7"),
        (b"192.0.2.7,::ffff:10.0.0.9", "192.0.2.7"),
        # A field without an address at its right end: the peer counts.
        (b"", PROXY),
        (b",", PROXY),
        (b"192.0.2.7,", PROXY),
        (b"unknown", PROXY),
        (b"192.0.2.7, _hidden", PROXY),
        (b"[2001:db8::1", "2001:db8::/64"),
        (b"\xff\xfe", PROXY),
        (b"192.0.2.256", PROXY),
        (b"0192.0.2.7", PROXY),
    ],
)
def test_a_field_of_a_trusted_proxy(field: bytes, client: str) -> None:
    addresses = Addresses(TRUSTED)
    assert addresses.of(PROXY, field) == client
    assert addresses.of(PROXY, field) == client  # from the cache of results
    assert Addresses().of(PROXY, field) == PROXY
    assert addresses.of("192.0.2.99", field) == "192.0.2.99"


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.255.0.1", True),
        ("::ffff:10.0.0.1", True),
        ("fd00::1", True),
        ("11.0.0.1", False),
        ("fe00::1", False),
        ("-", False),
        ("", False),
        ("/run/hedgerow.sock", False),
    ],
)
def test_which_peers_are_trusted_proxies(peer: str, trusted: bool) -> None:
    addresses = Addresses(TRUSTED)
    assert addresses.is_trusted(peer) == trusted
    assert addresses.is_trusted(peer) == trusted  # from the cache of results
    assert not Addresses().is_trusted(peer)


def test_a_reload_forgets_what_the_old_networks_said() -> None:
    flows = Flows(_hashed, ["10.0.0.0/8"])
    assert flows.addresses.of(PROXY, b"192.0.2.7, 10.0.0.9") == "192.0.2.7"
    flows.adopt(_hashed, ["10.0.0.1"])  # a single address; 10.0.0.9 is a client now
    assert flows.addresses.of(PROXY, b"192.0.2.7, 10.0.0.9") == "10.0.0.9"
    flows.adopt(_hashed, ["10.0.0.2"])
    assert not flows.addresses.is_trusted(PROXY)
    assert flows.addresses.of(PROXY, b"192.0.2.7, 10.0.0.9") == PROXY
    flows.adopt(_hashed, [])
    assert not flows.addresses.is_trusted("10.0.0.2")
    assert flows.addresses.of(PROXY, b"192.0.2.7") == PROXY


def _hashed(value: bytes) -> str:
    return value.decode()


def test_the_memory_is_bounded() -> None:
    addresses = Addresses(TRUSTED)
    for n in range(2 * address._MEMO + 1):
        name = f"192.0.{n // 256}.{n % 256}"
        assert addresses.of(PROXY, name.encode()) == name
        assert addresses.of(name, b"192.0.2.7") == name
    for memo in (addresses._by_field, addresses._by_peer, addresses._trusted):
        assert 0 < len(memo) <= address._MEMO


def test_a_long_field_is_read_but_not_remembered() -> None:
    addresses = Addresses(TRUSTED)
    field = b" " * address._LONGEST + b"192.0.2.7"
    assert addresses.of(PROXY, field) == "192.0.2.7"
    assert addresses._by_field == {}


ENTRIES = st.sampled_from(
    ["10.0.0.2", "10.9.9.9", "192.0.2.1", "192.0.2.2", "fd00::1", "2001:db8::1", "x", ""]
)


@given(st.lists(ENTRIES, min_size=1, max_size=6))
def test_the_first_address_from_the_right_that_is_no_proxy(entries: list[str]) -> None:
    networks = [ip_network(text) for text in TRUSTED]
    expected = PROXY
    for entry in reversed(entries):
        try:
            found = ip_address(entry)
        except ValueError:
            break
        expected = entry if found.version == 4 else str(ip_network((int(found), 64), strict=False))
        if not any(found in network for network in networks):
            break
    assert Addresses(TRUSTED).of(PROXY, ", ".join(entries).encode()) == expected


@given(st.binary(max_size=80))
def test_any_bytes_count_as_some_address(field: bytes) -> None:
    found = Addresses(TRUSTED).of(PROXY, field)
    assert ip_network(found)
