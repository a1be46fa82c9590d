"""The order of regions for a request, and when the next region is used."""

from collections.abc import Sequence

import msgspec
from hypothesis import given, strategies as st

from policies.facts import RequestView
from router.config.model import Config, Health, RegionDistance, Regions, Replica as ReplicaConfig
from router.core.lease import Lease
from router.fleet.regions.nearest import Nearest
from router.fleet.replica import Replica

SLOTS = 10
FAR = (
    RegionDistance(start="eu", end="us", rtt_s=0.08),
    RegionDistance(start="eu", end="asia", rtt_s=0.2),
    RegionDistance(start="us", end="asia", rtt_s=0.15),
)


class World:
    """Replicas in regions. The region of a replica is the part of its ID before the dash."""

    def __init__(self, *ids: str, zones: dict[str, str] | None = None, **settings: object) -> None:
        self.replicas = tuple(_replica(id, (zones or {}).get(id, "")) for id in ids)
        self.served: Sequence[Replica] = self.replicas
        self.nearest = Nearest(lambda model: self.served)
        self.adopt(**{"region": "eu", **settings})
        self.leases: list[Lease] = []
        self.now = 100.0

    def adopt(self, **settings: object) -> None:
        self.nearest.adopt(msgspec.structs.replace(Config(), **settings))
        self.nearest.rebuilt(self.replicas)

    def fills(self, id: str, count: int) -> None:
        (replica,) = [r for r in self.replicas if r.id == id]
        self.leases += [Lease(replica) for _ in range(count)]

    def narrow(self, *, region: str = "", candidates: Sequence[Replica] | None = None) -> list[str]:
        view = RequestView(model="m")
        view.region = region
        found = self.nearest.narrow(
            view, self.served if candidates is None else candidates, self.now
        )
        return [replica.id for replica in found]


def _replica(id: str, zone: str) -> Replica:
    config = ReplicaConfig(url=f"http://at{id}:1", id=id, region=id.split("-")[0], zone=zone)
    replica = Replica(config, Health(), None)
    replica.slots = SLOTS
    return replica


def test_one_region_needs_no_order() -> None:
    assert not World("eu-1", "eu-2").nearest.is_used
    assert World("eu-1", "us-1").nearest.is_used
    assert not World("-1", "-2").nearest.is_used


def test_the_own_region_then_the_next_nearest() -> None:
    world = World("asia-1", "us-1", "eu-1", "eu-2", regions=Regions(distances=FAR))
    assert world.narrow() == ["eu-1", "eu-2"]
    world.fills("eu-1", 10)
    assert world.narrow() == ["eu-1", "eu-2"], "half of the slots are in use"
    world.fills("eu-2", 4)
    assert world.narrow() == ["us-1"], "0.7 of the slots are in use"
    world.fills("us-1", 7)
    assert world.narrow() == ["asia-1"]
    world.fills("asia-1", 9)
    assert world.narrow() == ["eu-1", "eu-2"], "all are full: the least utilised, at the end"


def test_a_client_prefers_its_own_region() -> None:
    world = World("asia-1", "us-1", "eu-1", regions=Regions(distances=FAR))
    assert world.narrow(region="us") == ["us-1"]
    assert world.nearest.order("us") == ("us", "eu", "asia")
    assert world.nearest.order("asia") == ("asia", "us", "eu")
    assert world.nearest.order("mars") == world.nearest.order("") == ("eu", "us", "asia")


def test_measured_distances_order_what_is_not_configured() -> None:
    world = World("asia-1", "us-1", "eu-1")
    asia, us, eu = world.replicas
    for replica, rtt_s in ((asia, 0.05), (us, 0.09), (eu, 0.001)):
        replica.speed.rtt_s = rtt_s
    world.narrow()
    assert world.nearest.order("") == ("eu", "asia", "us")
    asia.speed.rtt_s = 0.2
    world.now += 10.0
    world.narrow()
    assert world.nearest.order("") == ("eu", "us", "asia")


def test_a_region_does_not_flap() -> None:
    world = World("us-1", "eu-1", regions=Regions(distances=FAR))
    world.fills("eu-1", 7)
    assert world.narrow() == ["us-1"]
    world.leases.pop().release()
    assert world.narrow() == ["us-1"]
    world.leases.pop().release()
    assert world.narrow() == ["eu-1"]
    world.fills("eu-1", 1)
    assert world.narrow() == ["eu-1"]


def test_a_removed_replica_is_forgotten_and_the_state_of_its_region_is_kept() -> None:
    world = World("us-1", "eu-1", "eu-2", regions=Regions(distances=FAR))
    world.fills("eu-1", 7)
    world.fills("eu-2", 7)
    assert world.narrow() == ["us-1"]
    gone = world.replicas[2]
    gone.removed = True
    world.served = world.replicas = world.replicas[:2]
    world.nearest.rebuilt(world.replicas)
    found = [load for regions in world.nearest._models.values() for load in regions.loads.values()]
    assert all(gone not in load.members for load in found)
    world.leases.pop(0).release()
    assert world.narrow() == ["us-1"], "0.6 of the slots that are left are in use"
    world.leases.pop(0).release()
    assert world.narrow() == ["eu-1"]


def test_the_own_zone_is_nearest() -> None:
    zones = {"eu-1": "a", "eu-2": "b", "us-1": "b"}
    world = World("us-1", "eu-1", "eu-2", zones=zones, zone="b", regions=Regions(distances=FAR))
    assert world.nearest.order("") == ("eu/b", "eu", "us")
    assert world.narrow() == ["eu-2"]
    world.fills("eu-2", 7)
    assert world.narrow() == ["eu-1"]
    world.fills("eu-1", 7)
    assert world.narrow() == ["us-1"]
    assert World("eu-1", "eu-2", zones=zones, zone="b").nearest.is_used


def test_choices_are_counted() -> None:
    world = World("us-1", "eu-1", regions=Regions(distances=FAR))
    world.narrow()
    world.fills("eu-1", 7)
    world.narrow()
    world.narrow(region="us")
    assert world.nearest.choices == {("eu", "eu"): 1, ("eu", "us"): 1, ("us", "us"): 1}
    assert world.nearest.utilisations("m", world.now) == {"eu": 0.7, "us": 0.0}


def test_memory_is_bounded() -> None:
    world = World("us-1", "eu-1")
    for number in range(3000):
        view = RequestView(model=f"m{number}")
        world.nearest.narrow(view, tuple(world.replicas), world.now)
    assert len(world.nearest._models) <= 1024
    assert len(world.nearest._splits) <= 64
    assert len(world.nearest._orders) <= 2


IDS = ("us-1", "us-2", "eu-1", "eu-2", "asia-1")


@given(
    loads=st.lists(st.integers(0, 12), min_size=len(IDS), max_size=len(IDS)),
    chosen=st.sets(st.sampled_from(IDS), min_size=1),
    region=st.sampled_from(["", "eu", "us", "asia", "mars"]),
)
def test_the_nearest_that_is_not_full_else_the_least_utilised(
    loads: list[int], chosen: set[str], region: str
) -> None:
    world = World(*IDS, regions=Regions(distances=FAR))
    for id, count in zip(IDS, loads, strict=True):
        world.fills(id, count)
    candidates = [replica for replica in world.replicas if replica.id in chosen]
    found = world.narrow(region=region, candidates=candidates)
    assert found and set(found) <= chosen
    used: dict[str, float] = {}
    for name in ("eu", "us", "asia"):
        members = [replica for replica in world.replicas if replica.region == name]
        used[name] = sum(r.load for r in members) / (SLOTS * len(members))
    possible = [n for n in world.nearest.order(region) if any(id.startswith(n) for id in chosen)]
    free = [name for name in possible if used[name] < 0.7]
    expected = free[0] if free else min(possible, key=lambda name: used[name])
    assert found == [r.id for r in candidates if r.region == expected]
