"""The utilisation of a region, and its hysteresis."""

from router.core.lease import Lease
from router.fleet.regions.nearest import RegionLoad
from router.fleet.replica import Replica
from tests.dispatch.replicas import bare

SPILL, RETURN = 0.7, 0.6


def members(count: int = 2, slots: int | None = 10) -> list[Replica]:
    found = [bare(f"r{number}") for number in range(count)]
    for replica in found:
        replica.slots = slots
    return found


def load_of(replicas: list[Replica]) -> RegionLoad:
    load = RegionLoad()
    load.serve(replicas)
    return load


def looked(load: RegionLoad, now: float = 0.0) -> tuple[float, bool]:
    load.look(SPILL, RETURN, now)
    return load.used, load.is_full


def test_it_is_full_at_the_limit_and_free_again_below_the_lower_one() -> None:
    replicas = members()
    load = load_of(replicas)
    leases = [Lease(replicas[number % 2]) for number in range(13)]
    assert looked(load) == (0.65, False)
    leases.append(Lease(replicas[0]))
    assert looked(load) == (0.7, True)
    leases.pop().release()
    assert looked(load) == (0.65, True), "between the limits it stays full"
    leases.pop().release()
    assert looked(load) == (0.6, True)
    leases.pop().release()
    assert looked(load) == (0.55, False)
    leases.append(Lease(replicas[0]))
    assert looked(load) == (0.6, False), "between the limits it stays free"


def test_a_full_cache_is_full_whatever_the_slots_say() -> None:
    replicas = members()
    replicas[0].kv_usage, replicas[0].kv_tokens = 0.9, 3000
    replicas[1].kv_usage, replicas[1].kv_tokens = 0.3, 1000
    assert looked(load_of(replicas)) == (0.75, True)


def test_an_unknown_utilisation_is_not_full() -> None:
    assert looked(load_of(members(slots=None))) == (-1.0, False)
    assert looked(load_of([])) == (-1.0, False)


def test_a_large_region_is_computed_once_in_a_while() -> None:
    replicas = members(count=640, slots=1)
    load = load_of(replicas)
    assert looked(load, 10.0) == (0.0, False)
    leases = [Lease(replica) for replica in replicas]
    assert looked(load, 10.05) == (0.0, False)
    assert looked(load, 10.11) == (1.0, True)
    for lease in leases:
        lease.release()
