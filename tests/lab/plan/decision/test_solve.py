"""The division of a problem into independent ones."""

from typing import Any

import pytest

from router.lab.plan.decision.problem import PlanError, Problem
from router.lab.plan.decision.solve import parts, solve
from router.lab.plan.observed import Place
from tests.lab.plan.decision.problems import pool, problem, segment

POOLS = (pool("m", "eu"), pool("m", "us"), pool("n", "eu"))
LOADS = {("m", "eu", "gpu"): 1.5, ("m", "us", "gpu"): 2.5, ("n", "eu", "gpu"): 3.5}


def sizes(**more: Any) -> list[int]:
    return sorted(len(part.pools) for part in parts(_problem(**more)))


def _problem(**more: Any) -> Problem:
    return problem(*POOLS, segments=(segment(LOADS),), **more)


def test_places_are_independent_without_shifts() -> None:
    assert sizes() == [1, 1, 1]


def test_regions_of_a_model_belong_together_with_shifts() -> None:
    assert sizes(shifts={("eu", "us"): 1.0}) == [1, 2]


def test_a_total_joins_all_models() -> None:
    assert sizes(totals={("gpu", "eu"): 5}) == [3]


def test_each_part_has_its_own_loads() -> None:
    for part in parts(_problem(shifts={("eu", "us"): 1.0})):
        models = {each.id.place.model for each in part.pools}
        assert {place.model for place in part.places} == models


def test_the_parts_are_joined() -> None:
    found = solve(_problem())
    assert {key.place: count for key, count in found.replicas.items()} == {
        Place("m", "eu"): 2,
        Place("m", "us"): 3,
        Place("n", "eu"): 4,
    }
    assert len(found.used) == len(found.short) == 1
    assert len(found.used[0]) == 3


@pytest.mark.parametrize("totals", [{}, {("gpu", "eu"): 9}])
def test_impossible_limits_are_an_error(totals: dict[tuple[str, str], int]) -> None:
    one = problem(pool("m", "eu", low=3, high=2), segments=(), totals=totals)
    with pytest.raises(PlanError, match="m in eu: no number of replicas is within the limits"):
        solve(one)


def test_a_total_without_pools_is_no_problem() -> None:
    assert solve(problem(segments=(segment({}),), totals={("gpu", "eu"): 9})).replicas == {}


def test_pools_without_demand_need_no_replicas() -> None:
    pools = (pool("m", "eu", now=2), pool("m", "us", low=1))
    found = solve(problem(*pools, segments=(segment({}),), shifts={("eu", "us"): 1.0}))
    assert list(found.replicas.values()) == [0, 1]
