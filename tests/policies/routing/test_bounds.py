from __future__ import annotations

from dataclasses import dataclass

import pytest

from policies.contract import Candidate
from policies.routing.bounds import load_bound


@dataclass
class Options:
    relative: float = 1.25
    absolute: float = 4.0


def even(load: int, weight: float = 1.0) -> list[Candidate]:
    return [Candidate(f"r{index}", load=load, weight=weight) for index in range(8)]


@pytest.mark.parametrize(("load", "bound"), [(0, 4.0), (4, 8.0), (16, 20.0), (40, 50.0)])
def test_the_larger_margin_counts(load: int, bound: float) -> None:
    assert load_bound(Options(), even(load)) == bound


def test_what_comes_in_is_part_of_the_load() -> None:
    assert load_bound(Options(absolute=0), even(0), incoming=8) == 1.25


@pytest.mark.parametrize("weight", [0.25, 1.0, 64.0])
def test_weights_count_by_their_ratios(weight: float) -> None:
    """The limit of requests at one replica does not depend on the unit of the weights."""
    for load in (0, 4, 40):
        allowed = load_bound(Options(), even(load, weight)) * weight
        assert allowed == load_bound(Options(), even(load))


def test_three_times_the_weight_allows_three_times_the_load() -> None:
    candidates = [Candidate("light", weight=0.5, load=20), Candidate("heavy", weight=1.5, load=60)]
    bound = load_bound(Options(), candidates)
    assert [bound * c.weight for c in candidates] == [25.0, 75.0]
