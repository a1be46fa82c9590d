"""Connections are counted by address; a waiting one of the address with the most is closed."""

import pytest
from hypothesis import given, strategies as st

from router.wire.origins import INSIDE, Counted, Origins


class Client(Counted):
    def __init__(
        self, peer: str, quiet_from: float = 0.0, *, quiet_for_others: bool = True
    ) -> None:
        super().__init__()
        self.peer = peer
        self.quiet_from = quiet_from
        self.quiet_for_others = quiet_for_others
        self.asked = 0

    def is_quiet(self, now: float, *, is_own: bool) -> bool:
        self.asked += 1
        return now >= self.quiet_from and (is_own or self.quiet_for_others)

    def shed(self) -> None:
        raise AssertionError("counting closes nothing")


def joined(origins: Origins, peer: str, count: int = 1, quiet_from: float = 0.0) -> list[Client]:
    clients = [Client(peer, quiet_from) for _ in range(count)]
    for client in clients:
        origins.join(client)
    return clients


@given(
    st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=80),
)
def test_every_connection_is_in_the_group_of_its_address(steps: list[tuple[int, bool]]) -> None:
    peers = ["10.0.0.1", "10.0.0.2", INSIDE, "2001:db8::1"]
    clients = [Client(peers[n % 4]) for n in range(12)]
    origins, inside = Origins(), set()
    for which, comes in steps:
        client = clients[which]
        if not comes:
            origins.leave(client)  # the connection may already be removed
            inside.discard(which)
        elif which not in inside:
            origins.join(client)
            inside.add(which)
        counts = {peer: sum(clients[n].peer == peer for n in inside) for peer in peers}
        assert len(origins) == sum(1 for count in counts.values() if count)
        highest = max(count for peer, count in counts.items() if peer != INSIDE)
        for n, client in enumerate(clients):
            if n not in inside:
                assert client.origin is None
                continue
            assert client.origin is not None
            assert client.origin.connections[client.place] is client
            assert len(client.origin.connections) == counts[client.peer]
            assert origins.is_largest(client) == (counts[client.peer] >= highest)
    for client in clients:
        origins.leave(client)
    assert len(origins) == 0


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("/tmp/a.sock", "/tmp/a.sock", True),
    ],
)
def test_what_counts_as_one_address(first: str, second: str, together: bool) -> None:
    origins = Origins()
    joined(origins, first)
    joined(origins, second)
    assert len(origins) == (1 if together else 2)


def test_the_largest_address_makes_room_for_a_smaller_one() -> None:
    origins = Origins()
    crowd = joined(origins, "10.0.0.1", 5)
    (small,) = joined(origins, "10.0.0.2")
    assert origins.is_largest(crowd[0]) and not origins.is_largest(small)
    assert origins.quiet(small, 0.0) in crowd


def test_an_address_with_the_most_makes_room_for_itself() -> None:
    """Another address with as many connections need not close one."""
    origins = Origins()
    first = joined(origins, "10.0.0.1", 3)
    second = joined(origins, "10.0.0.2", 3)
    assert origins.quiet(first[0], 0.0) in first
    assert origins.quiet(second[0], 0.0) in second


def test_a_connection_may_be_quiet_for_its_own_address_only() -> None:
    origins = Origins()
    crowd = [Client("10.0.0.1", quiet_for_others=False) for _ in range(4)]
    for client in crowd:
        origins.join(client)
    (small,) = joined(origins, "10.0.0.2")
    assert origins.quiet(small, 0.0) is None
    assert origins.quiet(crowd[0], 0.0) in crowd


def test_connections_with_a_request_are_not_chosen() -> None:
    origins = Origins()
    joined(origins, "10.0.0.1", 3, quiet_from=9.0)
    (waits,) = joined(origins, "10.0.0.1")
    (new,) = joined(origins, "10.0.0.2")
    assert origins.quiet(new, 0.0) is waits
    origins.leave(waits)
    assert origins.quiet(new, 0.0) is None


def test_connections_from_inside_are_neither_ranked_nor_closed() -> None:
    origins = Origins()
    inside = joined(origins, INSIDE, 9)
    assert origins.is_largest(inside[0])
    assert origins.quiet(inside[0], 0.0) is None
    (client,) = joined(origins, "10.0.0.1")
    assert origins.is_largest(client)
    assert origins.quiet(client, 0.0) is client


def test_a_search_looks_at_few_and_the_next_goes_on_from_there() -> None:
    origins = Origins()
    busy = joined(origins, "10.0.0.1", 1_000, quiet_from=9.0)
    (waits,) = joined(origins, "10.0.0.1")
    (new,) = joined(origins, "10.0.0.2")
    searches = 1
    while origins.quiet(new, 0.0) is not waits:
        searches += 1
        assert searches < 100
    assert searches > 10
    assert max(client.asked for client in busy) == 1


def test_the_search_starts_again_after_most_have_left() -> None:
    origins = Origins()
    busy = joined(origins, "10.0.0.1", 60, quiet_from=9.0)
    (new,) = joined(origins, "10.0.0.2")
    assert origins.quiet(new, 0.0) is None
    for client in busy[2:]:
        origins.leave(client)
    assert origins.quiet(new, 9.0) in busy[:2]


def test_a_connection_that_left_is_ignored() -> None:
    origins = Origins()
    (gone,) = joined(origins, "10.0.0.1")
    joined(origins, "10.0.0.2")
    origins.leave(gone)
    origins.leave(gone)
    assert origins.quiet(gone, 0.0) is None
    assert origins.is_largest(gone)
