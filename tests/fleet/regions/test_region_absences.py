"""The time since which a region has had no fit replica."""

from __future__ import annotations

from policies.allowed import Allowed
from router.fleet.model_pools import ModelPool, ModelPools
from router.fleet.regions.region_absences import RegionAbsences
from router.fleet.replica import Replica
from tests.dispatch.replicas import bare

EU, BOTH = Allowed(["eu"]), Allowed(["eu", "us"])


def replica(name: str, region: str) -> Replica:
    found = bare(name)
    found.region = region
    found.models = frozenset(["m", name])
    return found


def pools_of(*replicas: Replica, away: tuple[Replica, ...] = ()) -> list[ModelPool]:
    pools = ModelPools(replicas)
    for pool in pools.all:
        pool.judge(set(away), set(), 0.0)
    return pools.all


def test_a_region_is_absent_from_its_loss_to_its_return() -> None:
    a, b = replica("a", "eu"), replica("b", "us")
    absences = RegionAbsences()
    absences.update(pools_of(a, b), 1.0)
    assert absences.since("m", EU) is None
    absences.update(pools_of(a, b, away=(a,)), 2.0)
    absences.update(pools_of(a, b, away=(a,)), 3.0)
    assert absences.since("m", EU) == absences.since("a", EU) == absences.since(None, EU) == 2.0
    absences.update(pools_of(a, b), 4.0)
    assert absences.since("m", EU) is None


def test_the_last_of_several_regions_counts() -> None:
    a, b = replica("a", "eu"), replica("b", "us")
    absences = RegionAbsences()
    absences.update(pools_of(a, b, away=(a,)), 2.0)
    absences.update(pools_of(a, b, away=(a, b)), 5.0)
    assert absences.since("m", EU) == 2.0
    assert absences.since("m", BOTH) == 5.0


def test_a_model_without_replicas_there_is_absent_as_long_as_the_region() -> None:
    a = replica("a", "eu")
    absences = RegionAbsences()
    absences.update(pools_of(a, away=(a,)), 2.0)
    assert absences.since("unknown", EU) == 2.0
    assert absences.since("m", Allowed(["mars"])) is None
