"""Host names in endpoints: resolved by the replica's resolver, kept while connected.

While no address is connected, all addresses are tried in turn.
"""

import asyncio
import socket

import pytest

from router.addons.kv_events.watcher import Addresses
from router.fleet.engines.common.publishers import Source
from router.wire.pool import Address

HOST = "replica.test"  # RFC 6761: no name server knows it
NAMED = Source(f"tcp://{HOST}:5557", f"tcp://{HOST}:5558", "kv", 1)


class Resolver:
    """Replaces the data plane's resolver; None: a name that never had an address."""

    def __init__(self, *found: str) -> None:
        self.found: list[str] | None = list(found)

    async def __call__(self) -> list[str]:
        if self.found is None:
            raise socket.gaierror(socket.EAI_AGAIN, "the name server does not answer")
        return self.found


def at(endpoint: str, replay: str | None = None) -> Source:
    return Source(endpoint, replay, "kv", 1)


def resolved(
    resolver: Resolver,
    source: Source = NAMED,
    used: Source | None = None,
    is_connected: bool = False,
) -> Source:
    addresses = Addresses(Address(HOST, 8000, resolve=resolver))
    addresses.keep([source])
    return asyncio.run(addresses.resolved(source, used, is_connected))


ONE = at("tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558")
TWO = at("tcp://[fd00::2]:5557", "tcp://[fd00::2]:5558")


@pytest.mark.parametrize("found", [("10.0.0.1", "fd00::2"), ("fd00::2", "10.0.0.1")])
def test_a_connected_subscriber_keeps_its_address_while_the_name_has_it(
    found: tuple[str, ...],
) -> None:
    assert resolved(Resolver(*found), used=ONE, is_connected=True) == ONE
    assert resolved(Resolver(*found), used=TWO, is_connected=True) == TWO


def test_a_name_that_moved_moves_a_connected_subscriber() -> None:
    assert resolved(Resolver("fd00::2"), used=ONE, is_connected=True) == TWO


def test_the_next_address_is_tried_while_nothing_is_connected() -> None:
    resolver = Resolver("10.0.0.1", "fd00::2")
    assert resolved(resolver, used=ONE) == TWO
    assert resolved(resolver, used=TWO) == ONE
    assert resolved(Resolver("10.0.0.1"), used=ONE) == ONE


def test_a_name_without_an_address_is_an_error() -> None:
    resolver = Resolver()
    resolver.found = None
    with pytest.raises(OSError):
        resolved(resolver, used=ONE, is_connected=True)


def test_a_host_that_is_not_the_replica_keeps_its_own_last_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = at("tcp://events.test:5557")
    asked: list[str] = []

    def look_up(host: str, *args: object, **hints: object) -> list[object]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.9", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def body() -> None:
        addresses = Addresses(Address(HOST, 8000, resolve=Resolver("10.0.0.1")))
        for _ in range(3):
            addresses.keep([other])
            assert await addresses.resolved(other, None, False) == at("tcp://10.0.0.9:5557")
        assert asked == ["events.test"]
        addresses.keep([NAMED])  # the other host is removed
        assert await addresses.resolved(other, None, False) == at("tcp://10.0.0.9:5557")
        assert asked == ["events.test"] * 2

    asyncio.run(body())


@pytest.mark.parametrize("endpoint", ["ipc:///run/kv", "tcp://10.0.0.7:5557", "tcp://[fd00::7]:1"])
def test_an_endpoint_without_a_name_stays(endpoint: str) -> None:
    assert resolved(Resolver("10.0.0.1"), at(endpoint)) == at(endpoint)
