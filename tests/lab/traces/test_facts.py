"""The reported facts of a traffic, compared with a manual count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import ceil
from random import Random
from statistics import mean, pstdev

import pytest

from router.lab.simulator.traffic import Arrival
from router.lab.traces import describe, open_trace
from router.lab.traces.facts import _Distinct, _Lengths
from tests.lab.traces.helpers import AZURE, DATA, MOONCAKE


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


def test_mooncake_is_counted_as_by_hand() -> None:
    raw = [json.loads(line) for line in MOONCAKE.read_text().splitlines()]
    facts = describe(open_trace(MOONCAKE, spread_seed=None))
    inputs = [row["input_length"] for row in raw]
    outputs = [row["output_length"] for row in raw]
    assert (facts.rows, facts.duration_s) == (400, raw[-1]["timestamp"] / 1000.0)
    assert facts.rate == pytest.approx(400 / facts.duration_s)
    assert facts.input.mean == pytest.approx(mean(inputs))
    assert facts.output.mean == pytest.approx(mean(outputs))
    assert (facts.input.p50, facts.input.p95) == (
        nearest_rank(inputs, 0.5),
        nearest_rank(inputs, 0.95),
    )
    assert (facts.output.p95, facts.output.most) == (nearest_rank(outputs, 0.95), max(outputs))
    # Reuse counted from the prefixes: was the prefix up to each full block seen before?
    seen: set[tuple[int, ...]] = set()
    hits = asked = 0
    for row in raw:
        ids = tuple(row["hash_ids"])
        asked += len(ids)
        for depth in range(1, row["input_length"] // 512 + 1):
            hits += ids[:depth] in seen
            seen.add(ids[:depth])
    assert facts.reuse is not None
    assert (facts.reuse.hits, facts.reuse.asked, facts.distinct_blocks) == (hits, asked, len(seen))
    assert facts.is_exact
    assert facts.reuse.share > 0.05


def test_gaps_of_azure() -> None:
    trace = open_trace(AZURE)
    times = [a.at for a in trace]
    gaps = [b - a for a, b in pairwise(times)]
    facts = describe(trace)
    assert facts.gap_cv == pytest.approx(pstdev(gaps) / mean(gaps))
    assert facts.reuse is None
    assert facts.distinct_blocks == 0


def test_models_failures_and_notes() -> None:
    facts = describe(Listed([Arrival(n, n, 9, n, model="ab"[n % 2]) for n in range(4)]))
    assert facts.models == {"a": 2, "b": 2}
    assert facts.no_output == 1
    facts = describe(open_trace(DATA / "hedgerow.log"))
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
