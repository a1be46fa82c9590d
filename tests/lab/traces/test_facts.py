"""The reported facts of a traffic, compared with a manual count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import ceil
from random import Random
from statistics import mean, pstdev

import pytest

from router.lab.simulator.traffic import Arrival
from router.lab.traces import Trace, describe
from router.lab.traces.facts import _Distinct, _Lengths
from tests.lab.traces.helpers import SAMPLE


class Listed:
    """Traffic from a list of arrivals."""

    name = "listed"
    block_tokens = 16

    def __init__(self, arrivals: list[Arrival]) -> None:
        self.arrivals = arrivals

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.arrivals)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()


def nearest_rank(numbers: list[int], q: float) -> int:
    return sorted(numbers)[max(0, ceil(q * len(numbers)) - 1)]


def test_lengths_gaps_and_reuse_are_counted_as_by_hand() -> None:
    rng = Random(3)
    now, arrivals = 0.0, []
    for n in range(400):
        now += rng.expovariate(2.0)
        blocks = tuple(range(rng.choice([0, 100]), rng.choice([101, 105, 120])))
        prompt = 16 * len(blocks) + rng.randrange(16) + 1
        arrivals.append(Arrival(n, now, prompt, rng.randrange(1, 500), blocks))
    facts = describe(Listed(arrivals))
    inputs = [a.prompt_tokens for a in arrivals]
    outputs = [a.output_tokens for a in arrivals]
    gaps = [b.at - a.at for a, b in pairwise(arrivals)]
    assert (facts.rows, facts.duration_s) == (400, arrivals[-1].at - arrivals[0].at)
    assert facts.rate == pytest.approx(400 / facts.duration_s)
    assert facts.gap_cv == pytest.approx(pstdev(gaps) / mean(gaps))
    assert (facts.input.mean, facts.output.mean) == pytest.approx((mean(inputs), mean(outputs)))
    for found, numbers in ((facts.input, inputs), (facts.output, outputs)):
        assert found.p50 == nearest_rank(numbers, 0.5)
        assert found.p95 == nearest_rank(numbers, 0.95)
        assert found.most == max(numbers)
    seen: set[int] = set()
    hits = 0
    for arrival in arrivals:
        hits += sum(block in seen for block in arrival.blocks)
        seen.update(arrival.blocks)
    assert facts.reuse is not None and facts.is_exact
    assert (facts.reuse.hits, facts.distinct_blocks) == (hits, len(seen))
    assert facts.reuse.asked == sum(ceil(prompt / 16) for prompt in inputs)


def test_models_failures_and_notes() -> None:
    facts = describe(Listed([Arrival(n, n, 9, n, model="ab"[n % 2]) for n in range(4)]))
    assert facts.models == {"a": 2, "b": 2}
    assert facts.no_output == 1
    facts = describe(Trace(SAMPLE))
    assert facts.notes["skipped: refused"] == 1


def test_one_request_and_none() -> None:
    facts = describe(Listed([Arrival(0, 5.0, 10, 0)]))
    assert (facts.rows, facts.duration_s, facts.rate, facts.gap_cv) == (1, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="no requests"):
        describe(Listed([]))


def test_models_beyond_a_hundred_are_counted_together() -> None:
    arrivals = [Arrival(i, float(i), 1, 1, model=f"m{i}") for i in range(150)]
    models = describe(Listed(arrivals)).models
    assert len(models) == 101
    assert models[""] == 50


def test_distinct_blocks_beyond_the_exact_ones_are_estimated() -> None:
    rng = Random(7)
    blocks = [rng.getrandbits(64) for _ in range(100_000)]
    few = _Distinct(100_000)
    many = _Distinct(8_192)
    for i in range(0, 100_000, 10):
        for distinct in (few, many):
            distinct.add(tuple(blocks[i : i + 10]))
            distinct.add(tuple(blocks[i : i + 10]))
    assert few.is_exact and few.count() == 100_000
    assert not many.is_exact
    assert many.count() == pytest.approx(100_000, rel=0.05)  # four standard errors


def test_lengths_beyond_the_exact_ones_are_sketched() -> None:
    rng = Random(8)
    numbers = [rng.randrange(1, 1_000_000) for _ in range(5_000)]
    lengths = _Lengths(most=50)
    for number in numbers:
        lengths.add(number)
    facts = lengths.facts()
    assert facts.mean == pytest.approx(mean(numbers))
    assert facts.most == max(numbers)
    assert facts.p50 == pytest.approx(nearest_rank(numbers, 0.5), rel=0.011)
    assert facts.p95 == pytest.approx(nearest_rank(numbers, 0.95), rel=0.011)
