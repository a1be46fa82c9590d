"""Defines the columns of the table of pools.

A pool is the replicas of one type that serve one model in one region. All functions are pure.
"""

from __future__ import annotations

from router.core.text.table import Column, Table, build
from router.lab.plan.decision.advice import PlaceAdvice, PoolAdvice
from router.lab.plan.planning import Planned


def table(made: Planned) -> Table:
    """Return a table with one row for each pool. Columns without values are left out."""
    pools = made.advice.pools
    places = {one.place: one for one in made.advice.places}

    def of(pool: PoolAdvice) -> PlaceAdvice | None:
        return places.get(pool.id.place)

    def reason(pool: PoolAdvice) -> str:
        place = of(pool)
        return "moved demand" if place is None else place.binding

    def short(pool: PoolAdvice) -> float | None:
        place = of(pool)
        return None if place is None else 100.0 * place.short

    def peak(pool: PoolAdvice) -> float | None:
        place = of(pool)
        return None if place is None else place.peak

    def capacity(pool: PoolAdvice) -> float | None:
        place = of(pool)
        return None if place is None else place.capacity

    def busy(pool: PoolAdvice) -> float | None:
        place = of(pool)
        known = None if place is None else place.utilisation
        return None if known is None else 100.0 * known

    columns: list[Column[PoolAdvice]] = [
        Column("model", "model", text=lambda pool: pool.id.place.model or "(no model)")
    ]
    if any(pool.id.place.region for pool in pools):
        columns.append(Column("region", "region", text=lambda pool: pool.id.place.region))
    columns.append(Column("type", "type", text=lambda pool: pool.id.type))
    if any(pool.now is not None for pool in pools):
        columns += [
            Column("now", "now", "replicas", lambda pool: pool.now),
            Column("utilisation", "utilisation", "%", busy),
        ]
    columns.append(Column("plan", "plan", "replicas", lambda pool: pool.planned))
    if any(pool.reactive is not None for pool in pools):
        columns.append(Column("reactive", "reactive", "replicas", lambda pool: pool.reactive))
    columns += [
        Column("binding", "binding", text=reason),
        Column("peak", "peak demand", "tok/s", peak),
        Column("capacity", "capacity", "tok/s", capacity),
    ]
    if any(place.short for place in places.values()):
        columns.append(Column("short", "not served", "%", short))
    columns.append(Column("cost", "cost", "per h", lambda pool: pool.planned * pool.cost))
    return build(pools, columns)
