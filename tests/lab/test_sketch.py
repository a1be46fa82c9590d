"""The sketch compared with the exact quantiles of the same values."""

import pickle
from math import ceil, inf, nan

import pytest
from hypothesis import given, strategies as st

from router.lab.sketch import Sketch

# Above the smallest value that is distinguished from 0, up to any realistic seconds or tokens.
values = st.lists(st.floats(1e-8, 1e12), min_size=1, max_size=200)
shares = st.floats(0.0, 1.0)
SLACK = 1e-9  # on the logarithm at a bucket's edge


def sketch_of(numbers: list[float], **options: float) -> Sketch:
    sketch = Sketch(**options)  # type: ignore[arg-type]
    for number in numbers:
        sketch.add(number)
    return sketch


def exact(numbers: list[float], q: float) -> float:
    return sorted(numbers)[max(0, ceil(q * len(numbers)) - 1)]


def told(sketch: Sketch) -> list[tuple[float, int]]:
    return list(sketch.cumulative())


@given(values, shares, st.sampled_from([0.001, 0.01, 0.05]))
def test_every_quantile_is_within_the_accuracy(
    numbers: list[float], q: float, accuracy: float
) -> None:
    truth = exact(numbers, q)
    found = sketch_of(numbers, accuracy=accuracy).quantile(q)
    assert found == pytest.approx(truth, rel=accuracy + SLACK)


@given(values, values)
def test_merging_is_counting_both(left: list[float], right: list[float]) -> None:
    merged = sketch_of(left)
    merged.merge(sketch_of(right))
    both = sketch_of(left + right)
    assert told(merged) == told(both)
    assert merged.total == pytest.approx(both.total)


@given(values)
def test_merging_with_itself_doubles(numbers: list[float]) -> None:
    sketch = sketch_of(numbers)
    sketch.merge(sketch)
    assert told(sketch) == told(sketch_of(numbers * 2))


@given(values, st.integers(1, 20), st.lists(st.floats(1e-8, 1e12), max_size=50))
def test_bounded_buckets_keep_count_and_the_highest_values(
    numbers: list[float], buckets: int, more: list[float]
) -> None:
    sketch = sketch_of(numbers, buckets_max=buckets)
    sketch.merge(sketch_of(more, buckets_max=buckets))
    whole = sketch_of(numbers + more)
    assert len(sketch) <= buckets
    assert sketch.count == len(numbers) + len(more)
    # Buckets that were not merged equal those of an unbounded sketch; the lowest one took the rest.
    assert told(sketch) == told(whole)[-len(sketch) :]


def test_a_value_below_the_floor_falls_into_the_lowest_bucket() -> None:
    sketch = sketch_of([1.0, 10.0, 100.0], buckets_max=2)
    before = told(sketch)
    sketch.add(1e-6)
    assert told(sketch) == [(value, seen + 1) for value, seen in before]
    assert sketch.quantile(0.0) == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize("odd", [0.0, -1.0, nan, 1e-9])
def test_an_invalid_time_counts_as_zero(odd: float) -> None:
    sketch = sketch_of([odd, 2.0])
    assert (sketch.count, sketch.zeros, sketch.total) == (2, 1, 2.0)
    assert sketch.quantile(0.5) == 0.0


def test_infinity_is_refused_and_nothing_counted() -> None:
    sketch = Sketch()
    with pytest.raises(OverflowError):
        sketch.add(inf)
    assert (sketch.count, sketch.total) == (0, 0.0)


def test_of_nothing() -> None:
    assert (Sketch().quantile(0.5), Sketch().mean, Sketch().count) == (None, None, 0)


def test_the_mean_is_exact() -> None:
    assert sketch_of([1.0, 2.0, 6.0]).mean == 3.0


def test_values_above_all_count_for_the_rank() -> None:
    sketch = sketch_of([1.0] * 98)
    assert sketch.quantile(0.98, above=2) == pytest.approx(1.0, rel=0.01)
    assert sketch.quantile(0.99, above=2) == inf
    assert Sketch().quantile(0.5, above=1) == inf


def test_only_equal_accuracies_merge() -> None:
    with pytest.raises(ValueError, match=r"0\.02 into 0\.01"):
        Sketch(0.01).merge(Sketch(0.02))


@pytest.mark.parametrize("options", [{"accuracy": 0.0}, {"accuracy": 1.0}, {"buckets_max": 0}])
def test_impossible_sizes_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        sketch_of([], **options)


def test_a_sketch_can_be_pickled() -> None:
    sketch = sketch_of([0.0, 1.0, 5.0])
    copy = pickle.loads(pickle.dumps(sketch))
    assert (told(copy), copy.total) == (told(sketch), sketch.total)
