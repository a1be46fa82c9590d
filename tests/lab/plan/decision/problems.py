"""Builders of small problems."""

from typing import Any

from router.lab.plan.decision.problem import Pool, PoolId, Problem, Segment
from router.lab.plan.observed import Place


def pool(model: str = "m", region: str = "", kind: str = "gpu", **more: Any) -> Pool:
    values: dict[str, Any] = {"now": 0, "low": 0, "high": 100, "cost": 1.0, "start": 0.0}
    return Pool(PoolId(Place(model, region), kind), **{**values, **more})


def segment(
    loads: dict[tuple[str, str, str], float], *starting: str, first: int = 0, end: int = 1
) -> Segment:
    """Loads by (model, region, type)."""
    keyed = {(Place(model, region), kind): load for (model, region, kind), load in loads.items()}
    return Segment(first, end, frozenset(starting or ("gpu",)), keyed)


def problem(*pools: Pool, segments: tuple[Segment, ...], **more: Any) -> Problem:
    return Problem(pools, segments, **{"utilisation": 1.0, **more})
