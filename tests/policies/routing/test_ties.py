"""The cheapest of many, and the draw among equals."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.facts import Candidate
from policies.routing.ties import draw, least_loaded, lowest
from tests.policies.helpers import fleet, loaded


@pytest.mark.parametrize(
    ("costs", "ids"),
    [
        ([2.0, 1.0, 3.0], "b"),
        ([1.0, 2.0, 1.0], "ac"),
        ([1.0, 1.0, 1.0], "abc"),
        ([float("inf"), float("inf"), 5.0], "c"),
        ([-1.0, 0.0, -1.0], "ac"),
    ],
)
def test_the_candidates_of_the_lowest_cost(costs: list[float], ids: str) -> None:
    assert "".join(c.id for c in lowest(loaded(0, 0, 0), costs)) == ids


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9))
def test_lowest_is_a_filter(costs: list[int]) -> None:
    candidates = [Candidate(str(n)) for n in range(len(costs))]
    found = lowest(candidates, [float(cost) for cost in costs])
    expected = [c for c, cost in zip(candidates, costs, strict=True) if cost == min(costs)]
    assert list(found) == expected


def test_one_alone_costs_no_random_number() -> None:
    rng = Random(1)
    (one,) = fleet(1.0)
    assert draw([one], rng) is one
    assert rng.random() == Random(1).random()


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (2.0, 2.0), (1.0, 3.0), (0.5, 0.25, 0.25)])
def test_a_draw_is_by_weight(weights: tuple[float, ...]) -> None:
    tied, rng = fleet(*weights), Random(1)
    drawn = Counter(draw(tied, rng).id for _ in range(6000))
    for one in tied:
        assert drawn[one.id] / 6000 == pytest.approx(one.weight / sum(weights), abs=0.03)


def test_a_draw_depends_on_the_generator_only() -> None:
    tied = fleet(1.0, 2.0, 3.0)
    first = [draw(tied, Random(seed)).id for seed in range(20)]
    assert first == [draw(tied, Random(seed)).id for seed in range(20)]
    assert len(set(first)) == 3


def test_the_least_load_for_its_weight() -> None:
    a, b = loaded(4, 6)
    assert least_loaded([a, b], Random(1)) is a
    b.weight = 2.0
    assert least_loaded([a, b], Random(1)) is b


def test_among_equal_loads_the_fewest_that_wait() -> None:
    a, b, c = loaded(4, 4, 5)
    a.waiting, b.waiting, c.waiting = 2, 1, 0
    for seed in range(10):
        assert least_loaded([a, b, c], Random(seed)) is b
    a.waiting = 1
    assert {least_loaded([a, b, c], Random(seed)).id for seed in range(20)} == {"a", "b"}
