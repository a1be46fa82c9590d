"""Turns of classes: shares by weight, no credit for idle classes, and a weight that ages."""

from collections import Counter
from typing import Any

import pytest

from policies.queueing.ticket import CLASSES
from router.admission.rules import Rules
from router.admission.waiting.stride import LAG, Stride
from router.core.urgency import BATCH, HIGH, LOW, NORMAL
from tests.admission.world import config


def a_stride(**classes: Any) -> Stride:
    return Stride(Rules(config(classes=classes)))


def served(stride: Stride, count: int, cost: float = 1.0) -> Counter[int]:
    """Serve the class with the lowest pass repeatedly; every class always has waiting requests."""
    found: Counter[int] = Counter()
    for _ in range(count):
        waiting = [c for c in range(HIGH, CLASSES) if stride.waiting[c]]
        urgency = min(waiting, key=lambda c: stride.passes[c])
        stride.serves(urgency, cost, float(urgency))
        found[urgency] += 1
    return found


def test_classes_that_wait_share_by_weight() -> None:
    stride = a_stride(high={"weight": 6.0}, normal={"weight": 3.0}, low={"weight": 1.0})
    for urgency in (HIGH, NORMAL, LOW):
        stride.begins(urgency)
    found = served(stride, 1000)
    assert found[HIGH] == pytest.approx(600, abs=3)
    assert found[NORMAL] == pytest.approx(300, abs=3)
    assert found[LOW] == pytest.approx(100, abs=3)


def test_a_class_that_waits_and_is_not_served_is_behind_by_a_limited_amount() -> None:
    stride = a_stride(normal={"weight": 1.0}, batch={"weight": 1.0})
    stride.begins(BATCH)
    assert not stride.is_behind(BATCH)
    for _ in range(1000):
        stride.serves(NORMAL, 100.0, float(NORMAL))  # sent without a wait
    assert stride.is_behind(BATCH)
    assert not stride.is_behind(NORMAL)
    assert stride.passes[NORMAL] - stride.passes[BATCH] == LAG
    found = 0
    while stride.is_behind(BATCH):
        stride.serves(BATCH, 100.0, float(BATCH))
        found += 1
    assert found == pytest.approx(LAG / 100.0, abs=1)


def test_all_passes_are_reset_when_no_class_waits() -> None:
    stride = a_stride(normal={"weight": 1.0}, batch={"weight": 1.0})
    stride.begins(BATCH)
    stride.serves(BATCH, 100.0, float(BATCH))
    stride.ends(BATCH)
    for urgency in (NORMAL, BATCH):
        stride.begins(urgency)
    assert stride.passes[NORMAL] == stride.passes[BATCH] == 100.0


def test_an_aged_class_pays_as_a_more_urgent_one() -> None:
    stride = a_stride(high={"weight": 8.0}, normal={"weight": 4.0}, batch={"weight": 1.0})
    stride.begins(BATCH)
    stride.serves(BATCH, 8.0, float(NORMAL))
    assert stride.passes[BATCH] == 2.0
    stride.serves(BATCH, 8.0, 0.0)  # aging ends at class high
    assert stride.passes[BATCH] == 3.0


def test_a_class_that_comes_back_has_saved_up_nothing() -> None:
    stride = Stride(Rules(config()))
    stride.begins(2)
    for _ in range(100):
        stride.serves(2, 1000.0, 2.0)
    stride.begins(4)
    assert stride.passes[4] >= stride.passes[2] - 1000.0 / 4.0
    stride.ends(2)
    stride.ends(4)
    stride.begins(3)  # no class waited: all begin equal
    assert stride.passes[3] == max(stride.passes)


def test_weights_between_classes_are_mixed_and_end_at_high() -> None:
    stride = Stride(Rules(config()))
    assert [stride.weight(float(level)) for level in (1, 2, 3, 4)] == [8.0, 4.0, 2.0, 1.0]
    assert stride.weight(2.5) == 3.0
    assert stride.weight(0.3) == stride.weight(1.0)
    assert stride.weight(9.0) == stride.weight(4.0)


def test_the_mean_cost_of_a_class_is_that_of_all_its_first_requests() -> None:
    stride = Stride(Rules(config()))
    stride.serves(HIGH, 10.0, float(HIGH))
    assert stride.costs == [10.0] * CLASSES, "no other class was served"
    for cost in (100.0, 400.0, 1000.0):
        stride.serves(BATCH, cost, float(BATCH))
    assert stride.costs[BATCH] == pytest.approx(500.0)
    for _ in range(997):
        stride.serves(BATCH, 500.0, float(BATCH))
    stride.serves(BATCH, 3060.0, float(BATCH))
    assert stride.costs[BATCH] == pytest.approx(510.0)
    assert stride.costs[HIGH] == 10.0
