"""The compared controllers that use no forecast.

Each rule decides for each region alone. The demand of a region is that of the last step, plus the
tokens that wait, which are to be served within one step. All rules see the waiting tokens, as the
plan does. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from bench.plan.fleet import Controller, Seen
from bench.plan.traffic import STEP_S
from bench.plan.world import THROUGHPUT, Counts, PoolKey, World
from router.lab.plan.decision.reactive import Scaled, reactive
from router.lab.plan.types_file import Reactive

# The thresholds of SageServe's reactive rule, in its code (arXiv 2502.14617).
SAGESERVE_UP, SAGESERVE_DOWN = 0.5, 0.25
# Defaults of the Horizontal Pod Autoscaler (HPA) of Kubernetes 1.34.
TOLERANCE: Final = 0.1
STABILIZATION_S: Final = 300.0
_SLACK: Final = 1e-6  # replicas; a need of 3.0000001 counts as 3


def static_controller(fleet: Counts) -> Controller:
    """Return a controller that starts a replica only in place of a reclaimed one."""
    return lambda step, seen: fleet


def reactive_controller(world: World, up: float) -> Controller:
    """Return a controller with the router's reactive rule (`router.lab.plan.decision.reactive`).

    It scales out to the threshold `up` at once, and below half of it stops one replica in a step.
    """
    rule = Reactive(up=up, down=up / 2.0)

    def wanted(region: str, load: float, seen: Seen) -> Counts:
        pools = [
            Scaled(
                kind.name,
                seen.present[PoolKey(region, kind.name)],
                load,
                kind.cost,
                kind.least,
                kind.most,
            )
            for kind in world.kinds
        ]
        return {PoolKey(region, name): count for name, count in reactive(pools, rule).items()}

    return _by_region(world, wanted)


def hpa_controller(world: World, target: float) -> Controller:
    """Return a controller that keeps a utilisation, as the Horizontal Pod Autoscaler does.

    It scales to the demand divided by `target`, unless the present utilisation is within
    `TOLERANCE` of `target`. It follows the highest wish of the last `STABILIZATION_S`.
    """
    wishes: dict[str, list[int]] = {region: [] for region in world.demands}
    kept = 1 + round(STABILIZATION_S / STEP_S)

    def wanted(region: str, load: float, seen: Seen) -> Counts:
        present = _count(world, region, seen.present)
        is_near = present > 0 and abs(load / present / target - 1.0) <= TOLERANCE
        wish = present if is_near else ceil(load / target - _SLACK)
        wishes[region] = [*wishes[region], wish][-kept:]
        return world.spread(region, max(wishes[region]))

    return _by_region(world, wanted)


def sageserve_controller(
    world: World, up: float = SAGESERVE_UP, down: float = SAGESERVE_DOWN
) -> Controller:
    """Return a controller with the reactive rule of SageServe (arXiv 2502.14617).

    The utilisation is that of the serving replicas, at most 1. Above `up` one replica is started;
    the next one may start when this one serves. Below `down` replicas are stopped one by one. A
    stop takes no time, so the replicas of several stops may end in the same step. The published
    rule measures the utilisation of the KV memory.
    """

    def wanted(region: str, load: float, seen: Seen) -> Counts:
        present = _count(world, region, seen.present)
        serving = _count(world, region, seen.serving)
        count = present
        if present == serving:
            if serving and min(1.0, load / serving) > up:
                count += 1
            while count > 1 and load / count < down:
                count -= 1
        return world.spread(region, count)

    return _by_region(world, wanted)


def _by_region(world: World, wanted: Callable[[str, float, Seen], Counts]) -> Controller:
    def controller(step: int, seen: Seen) -> Counts:
        found: dict[PoolKey, int] = {}
        for region in world.demands:
            queued = seen.waiting[region] / STEP_S / THROUGHPUT
            found |= wanted(region, world.load(region, step - 1) + queued, seen)
        return found

    return controller


def _count(world: World, region: str, counts: Mapping[PoolKey, int]) -> int:
    return sum(counts[PoolKey(region, kind.name)] for kind in world.kinds)
