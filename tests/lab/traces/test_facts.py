"""The reported facts of a traffic, compared with a manual count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil
from random import Random
from statistics import mean

import pytest

from router.lab.simulator.traffic import Arrival
from router.lab.traces import Trace, describe
from router.lab.traces.trace import _Distinct
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


def test_lengths_and_reuse_are_counted_as_by_hand() -> None:
    rng = Random(3)
    now, arrivals = 0.0, []
    for n in range(400):
        now += rng.expovariate(2.0)
        blocks = tuple(range(rng.choice([0, 100]), rng.choice([101, 105, 120])))
        prompt = 16 * len(blocks) + rng.randrange(16) + 1
        arrivals.append(Arrival(n, now, prompt, rng.randrange(1, 500), blocks))
    facts = describe(Listed(arrivals))
    inputs = [a.prompt_tokens for a in arrivals]
    assert (facts.rows, facts.duration_s) == (400, arrivals[-1].at - arrivals[0].at)
    assert facts.rate == pytest.approx(400 / facts.duration_s)
    assert facts.prompt_tokens == pytest.approx(mean(inputs))
    assert facts.output_tokens == pytest.approx(mean(a.output_tokens for a in arrivals))
    seen: set[int] = set()
    hits = 0
    for arrival in arrivals:
        hits += sum(block in seen for block in arrival.blocks)
        seen.update(arrival.blocks)
    assert facts.reuse is not None
    assert facts.reuse.hits == hits
    assert facts.reuse.asked == sum(ceil(prompt / 16) for prompt in inputs)


def test_models_and_notes() -> None:
    arrivals = [Arrival(i, float(i), 1, 1, model=f"m{i}") for i in range(150)]
    models = describe(Listed(arrivals)).models
    assert len(models) == 101  # models beyond a hundred are counted together
    assert (models["m0"], models[""]) == (1, 50)
    assert describe(Trace(SAMPLE)).notes["skipped: refused"] == 1


def test_one_request_and_none() -> None:
    facts = describe(Listed([Arrival(0, 5.0, 10, 0)]))
    assert (facts.rows, facts.duration_s, facts.rate, facts.reuse) == (1, 0.0, 0.0, None)
    with pytest.raises(ValueError, match="no requests"):
        describe(Listed([]))


def test_distinct_blocks_beyond_the_exact_ones_are_estimated() -> None:
    rng = Random(7)
    blocks = [rng.getrandbits(64) for _ in range(100_000)]
    few = _Distinct(100_000)
    many = _Distinct(8_192)
    for i in range(0, 100_000, 10):
        for distinct in (few, many):
            distinct.add(tuple(blocks[i : i + 10]))
            distinct.add(tuple(blocks[i : i + 10]))
    assert few.count() == 100_000
    assert many.count() == pytest.approx(100_000, rel=0.05)  # four standard errors
