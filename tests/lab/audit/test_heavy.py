"""The heaviest keys of a stream, against exact counts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.lab.audit.parties import Heavy


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50)), max_size=200), st.integers(1, 12)
)
def test_weights_are_bounded_and_all_heavy_items_are_kept(
    stream: list[tuple[int, int]], capacity: int
) -> None:
    heavy: Heavy[int, list[int]] = Heavy(capacity, list)
    true: Counter[int] = Counter()
    for key, weight in stream:
        true[key] += weight
        heavy.touch(key, weight).append(weight)
    found = dict(heavy.heaviest())
    assert len(found) <= capacity
    for key, entry in found.items():
        assert entry.weight - entry.error <= true[key] <= entry.weight
        assert sum(entry.value) == entry.weight - entry.error
    for key, weight in true.items():
        if weight > sum(true.values()) / capacity:
            assert key in found
    weights = [entry.weight for _, entry in heavy.heaviest()]
    assert weights == sorted(weights, reverse=True)


def test_a_new_item_replaces_the_lightest_one() -> None:
    heavy: Heavy[str, list[int]] = Heavy(2, list)
    heavy.touch("a", 5.0).append(5)
    heavy.touch("b", 1.0).append(1)
    heavy.touch("b", 1.0).append(1)
    assert heavy.touch("c", 1.0) == []
    assert [(key, entry.weight, entry.error) for key, entry in heavy.heaviest()] == [
        ("a", 5.0, 0.0),
        ("c", 3.0, 2.0),
    ]
    assert heavy.displaced == 1


def test_the_capacity_must_be_positive() -> None:
    with pytest.raises(ValueError, match="capacity"):
        Heavy(0, list)
