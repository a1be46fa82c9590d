"""A lease is taken when it is made and given back once, however often it is released."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.core.lease import Lease


class Holder:
    def __init__(self) -> None:
        self.inflight = 0


def test_making_a_lease_takes_the_slot() -> None:
    holder = Holder()
    lease = Lease(holder)
    assert lease.held
    assert holder.inflight == 1


@given(st.lists(st.integers(0, 9), max_size=60))
def test_only_the_first_release_counts(releases: list[int]) -> None:
    holder = Holder()
    leases = [Lease(holder) for _ in range(10)]
    for index in releases:
        leases[index].release()
        assert not leases[index].held
    assert holder.inflight == 10 - len(set(releases))


def test_a_released_lease_lets_go_of_its_holder() -> None:
    first, second = Holder(), Holder()
    lease = Lease(first)
    Lease(second)
    lease.release()
    lease.release()
    assert (first.inflight, second.inflight) == (0, 1)
