"""The cost loops over candidates, compared with the formula written as one expression."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.facts import Candidate
from policies.routing.costs import cheapest, least_pending


def candidate(pending: int = 0, load: int = 0, weight: float = 1.0) -> Candidate:
    return Candidate("r", pending_tokens=pending, load=load, weight=weight)


def test_the_least_that_waits() -> None:
    assert least_pending([candidate(7)]) == 7
    assert least_pending([candidate(7), candidate(3), candidate(5)]) == 3
    assert least_pending([candidate(0), candidate(3)]) == 0


def cost(one: Candidate, depth: int, new: float, spared: float, batch: float) -> float:
    miss = max(1.0, new - depth * spared) if depth else new
    return (one.pending_tokens / one.weight + miss) * (one.load / one.weight + batch)


CANDIDATES = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.integers(0, 50),
        st.sampled_from([0.25, 0.5, 1.0, 2.0]),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=12,
)


@given(CANDIDATES, st.sampled_from([0.0, 1.0, 1000.0]), st.sampled_from([0.0, 16.0, 128.0]))
def test_the_cheapest_is_that_of_the_formula(
    facts: list[tuple[int, int, float, int]], new: float, spared: float
) -> None:
    candidates = [candidate(*fact[:3]) for fact in facts]
    held = {one: fact[3] for one, fact in zip(candidates, facts, strict=True) if fact[3]}
    costs = [cost(one, held.get(one, 0), new, spared, 8.0) for one in candidates]
    found = cheapest(candidates, held, new, spared, 8.0, Random(1))
    assert costs[candidates.index(found)] == min(costs)
    same = cheapest(candidates, MappingProxyType(held), new, spared, 8.0, Random(1))
    assert same is found  # any mapping of holders


def test_one_candidate_costs_no_random_number() -> None:
    rng = Random(1)
    one = candidate(5)
    assert cheapest([one, candidate(9)], {}, 100.0, 0.0, 1.0, rng) is one
    assert rng.random() == Random(1).random()


def test_a_whole_prompt_in_the_cache_is_not_free() -> None:
    """If it were free, the load of its holder would not count any more."""
    holder, idle = candidate(load=500), candidate()
    assert cheapest([holder, idle], {holder: 50}, 100.0, 16.0, 1.0, Random(1)) is idle


def test_holders_that_are_no_candidates_do_not_matter() -> None:
    one = candidate()
    assert cheapest([one], {candidate(): 9, one: 2}, 100.0, 16.0, 1.0, Random(1)) is one


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 2.0, 1.0), (0.5, 0.25, 0.25)])
def test_equals_are_drawn_by_weight(weights: tuple[float, ...]) -> None:
    """Idle candidates cost the same, whatever their weight is."""
    candidates = [candidate(weight=weight) for weight in weights]
    rng, drawn = Random(1), Counter[int]()
    for _ in range(6000):
        drawn[candidates.index(cheapest(candidates, {}, 100.0, 0.0, 1.0, rng))] += 1
    for number, weight in enumerate(weights):
        assert drawn[number] / 6000 == pytest.approx(weight / sum(weights), abs=0.03)


def test_a_draw_among_equals_forgets_those_that_cost_more() -> None:
    dear = [candidate(900) for _ in range(20)]
    equals = [candidate(), candidate()]
    rng, drawn = Random(1), Counter[int]()
    for _ in range(2000):
        found = cheapest([*dear, equals[0], *dear, equals[1]], {}, 1.0, 0.0, 1.0, rng)
        drawn[equals.index(found)] += 1
    assert drawn[0] == pytest.approx(1000, abs=100)
