"""The cost loops over candidates, compared with the formula written as one expression."""

from random import Random
from types import MappingProxyType

from hypothesis import given, strategies as st

from policies.facts import Candidate
from policies.routing.costs import cheapest


def candidate(pending: int = 0, load: int = 0, weight: float = 1.0) -> Candidate:
    return Candidate("r", pending_tokens=pending, load=load, weight=weight)


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


def test_holders_that_are_no_candidates_do_not_matter() -> None:
    one = candidate()
    assert cheapest([one], {candidate(): 9, one: 2}, 100.0, 16.0, 1.0, Random(1)) is one
