"""Replicas of several regions in a simulation: the router's own code, with distances."""

from dataclasses import replace

import msgspec
import pytest

from router.config.keys import KeyLine
from router.config.varied import varied
from router.lab.simulator.scenario import Fault, Group, Scenario
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import CORE, TIMING, WORLD, Kept, played

NEAR_S, FAR_S = 0.001, 0.04  # one-way delays, in seconds
REGION = {"r0": "us", "r1": "eu", "r2": "eu"}
LIMITED = KeyLine(name="limited", hash=f"sha256:{1:064x}", allowed_regions=("eu",))
PREFERS_US = KeyLine(name="far", hash=f"sha256:{2:064x}", region="us")


def world(*, faults: tuple[Fault, ...] = (), **sections: object) -> Scenario:
    """One replica in `us`, and two in `eu`, where the router is; eight slots each."""
    us = Group(replicas=1, core=CORE, timing=TIMING, region="us", network_s=FAR_S, max_inflight=8)
    eu = replace(us, replicas=2, region="eu", network_s=NEAR_S)
    return replace(
        WORLD,
        groups=(us, eu),
        config=msgspec.structs.replace(varied(WORLD.config, **sections), region="eu"),
        keys={"LIMITED": LIMITED, "FAR": PREFERS_US},
        faults=faults,
    )


def asked(number: int, at: float, *, tenant: str = "", output: int = 40) -> Arrival:
    return Arrival(number, at, 200, output, tenant=tenant, is_known=tenant != "")


def regions(kept: Kept, count: int) -> list[str]:
    return [REGION[kept[number].replica] for number in range(count)]


def test_the_nearest_region_is_used_and_the_distance_counts() -> None:
    arrivals = [asked(n, 1.0 * n, tenant=("", "FAR")[n % 2]) for n in range(10)]
    kept = played(world(), *arrivals)
    assert regions(kept, 10) == ["eu", "us"] * 5
    near_s, far_s = (kept[n].first - kept[n].dispatched for n in (8, 9))
    assert far_s - near_s == pytest.approx(2.0 * (FAR_S - NEAR_S))
