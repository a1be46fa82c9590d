"""The model of turns: waits by weight, age and starvation, with the requests that will arrive."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from policies.queueing.ticket import CLASSES
from router.admission.rules import Rules
from router.admission.turn_model import (
    _ENDS,
    AVERAGE_S,
    ArrivalRates,
    TurnModel,
)
from router.admission.waiting.stride import Stride
from router.core.urgency import BATCH, CRITICAL, HIGH, LOW, NORMAL
from tests.admission.parts import PATIENT, Parts
from tests.admission.world import Spot, config, every_class

CALM = {"classes": every_class(**PATIENT), "batch_becomes_normal_after_s": 0.0}
ZERO = [0.0] * CLASSES
STEP = 1.14  # A wait may be predicted up to one step too long.


def a_model(**fields: Any) -> TurnModel:
    rules = Rules(config(**fields))
    model = TurnModel(rules, Stride(rules))
    model._stride.serves(NORMAL, 100.0, float(NORMAL))  # the cost of every request
    return model


def arriving(model: TurnModel, **rates: float) -> None:
    """Requests of these classes arrive, per second, for a long time."""
    names = ("critical", "high", "normal", "low", "batch")
    model.rates.count([0] * CLASSES, 0.0)
    model.rates.count([int(1e6 * rates.get(name, 0.0)) for name in names], 1e6)


def test_alone_a_class_is_served_at_the_rate_of_the_queue() -> None:
    model = a_model(**CALM)
    model.compute([0, 0, 100, 0, 0], ZERO, 200.0, 0.0)
    for ahead in (0.0, 1.0, 10.0, 90.0):
        assert model.wait_s(NORMAL, ahead) == pytest.approx((ahead + 1.0) / 2.0, rel=0.02)
    assert 50.5 <= model.wait_s(NORMAL, 100.0) < 50.5 * STEP


def test_requests_that_will_arrive_overtake() -> None:
    model = a_model(**CALM)
    arriving(model, high=1.0, critical=0.5)
    model.compute([0, 0, 0, 50, 0], ZERO, 200.0, 0.0)
    assert 100.0 <= model.wait_s(LOW, 50.0) < 101.0 * STEP


def test_starved_classes_share_half() -> None:
    fields = {**CALM, "classes": every_class(wait_s=1e6, starvation_s=1000.0)}
    model = a_model(**fields)
    ages = [0.0, 0.0, 0.0, 900.0, 900.0]
    model.compute([0, 0, 1000, 1000, 1000], ages, 800.0, 0.0)
    assert model.wait_s(LOW, 10.0) == pytest.approx(5.1, rel=0.05)
    assert model.wait_s(BATCH, 10.0) == pytest.approx(5.1, rel=0.05)
    assert model.wait_s(NORMAL, 20.0) == pytest.approx(5.1, rel=0.05)


def test_a_class_that_becomes_starved_during_the_wait_is_served_sooner() -> None:
    fields = {**CALM, "classes": every_class(wait_s=1e6, starvation_s=100.0)}
    model = a_model(**fields)
    arriving(model, normal=10.0)
    # Batch gets a fifth, until its oldest request has waited for 75 s; then it gets half.
    model.compute([0, 0, 1000, 0, 1000], ZERO, 1000.0, 0.0)
    slow = model.wait_s(BATCH, 150.0)
    assert 75.0 < slow < 150.0 / 2.0 + 5.0
    assert model.wait_s(BATCH, 300.0) - slow == pytest.approx(30.0, rel=0.2)


def test_after_the_last_step_the_rate_continues() -> None:
    model = a_model(**CALM)
    model.compute([0, 0, 10**6, 0, 0], ZERO, 200.0, 0.0)
    assert model.wait_s(NORMAL, 10**6) == pytest.approx(5e5, rel=0.01)


@pytest.mark.parametrize(("waiting", "ahead"), [(0, 1), (1, 2), (40, 61)])
def test_requests_of_a_burst_are_not_expected_to_arrive_later(waiting: int, ahead: int) -> None:
    model = a_model(**CALM)
    arriving(model, normal=0.1)
    model.compute([0, 0, waiting, 0, 0], ZERO, 10000.0, 0.0)
    assert model.is_fresh(NORMAL, ahead, 0.0)
    expected_s = (ahead + 1.0) / 100.0
    assert expected_s - 1e-9 <= model.wait_s(NORMAL, float(ahead)) < STEP * expected_s + 0.4


def test_a_wait_is_finite_for_a_class_that_gets_nothing() -> None:
    model = a_model(**CALM)
    arriving(model, critical=100.0)
    model.compute([0, 0, 10, 0, 0], ZERO, 100.0, 0.0)
    assert model.wait_s(NORMAL, 5.0) <= 1e6


COUNTS = st.lists(st.integers(0, 500), min_size=CLASSES, max_size=CLASSES)
AGES = st.lists(st.floats(0.0, 2000.0), min_size=CLASSES, max_size=CLASSES)
RATES = st.lists(st.integers(0, 5), min_size=CLASSES, max_size=CLASSES)


@given(COUNTS, AGES, RATES, st.floats(0.1, 20.0))
def test_the_capacity_is_used_and_never_exceeded(
    waiting: list[int], ages: list[float], rates: list[int], rate: float
) -> None:
    model = a_model()
    model.rates.count([0] * CLASSES, 0.0)
    model.rates.count([1000 * one for one in rates], 1000.0)
    model.compute(waiting, ages, 100.0 * rate, 1000.0)
    before, since = ZERO, 0.0
    for index, until in enumerate(_ENDS):
        sent = [model._table[urgency][index] for urgency in range(CLASSES)]
        more = [now - was for now, was in zip(sent, before, strict=True)]
        assert min(more) >= -1e-6
        come = [n + r * until for n, r in zip(waiting, rates, strict=True)]
        assert all(s <= c + 1e-3 for s, c in zip(sent, come, strict=True))
        possible = min(rate * (until - since), sum(come) - sum(before))
        assert sum(more) == pytest.approx(possible, rel=2e-3, abs=1e-3)
        before, since = sent, until
    for urgency in range(CLASSES):
        waits = [model.wait_s(urgency, float(ahead)) for ahead in range(0, 400, 7)]
        assert waits == sorted(waits)
        assert waits[0] > 0.0


@pytest.mark.parametrize("starvation_s", [1e6, 60.0])
def test_the_model_predicts_the_choices_of_the_queue(starvation_s: float) -> None:
    """Each half second a replica takes one request; more requests arrive than are served."""
    classes = every_class(wait_s=1e6, starvation_s=starvation_s)
    classes["critical"] = dict(PATIENT)
    spot = Spot("a")
    parts = Parts(spot, classes=classes)
    model = TurnModel(parts.rules, parts.choice.stride)
    every = {HIGH: 3, NORMAL: 4, LOW: 5, BATCH: 6}  # steps between two arrivals
    came = [0] * CLASSES
    asked: dict[int, tuple[float, float]] = {}
    errors = []
    for step in range(2400):
        now = 0.5 * step
        for urgency, steps in every.items():
            if step % steps:
                continue
            came[urgency] += 1
            model.rates.count(came, now)
            wait_lists = parts.wait_lists
            model.compute(
                wait_lists.eligible_of, wait_lists.ages_s(now, is_eligible=True), 200.0, now
            )
            ahead = float(wait_lists.eligible_of[urgency])
            ticket = parts.waits(now, number=float(urgency), tokens=99)
            if AVERAGE_S <= now < 600.0:
                asked[ticket.order] = (now, model.wait_s(urgency, ahead))
        for lane in parts.wait_lists.active.values():
            for class_queue in lane.all_queues():
                class_queue.promote(now, parts.rules.classes[class_queue.urgency].promote_s, 99)
        for ticket in parts.served(spot, now, most=1):
            if ticket.order in asked:
                at, predicted_s = asked.pop(ticket.order)
                errors.append(abs(predicted_s - (now - at)) / max(10.0, now - at))
    assert len(errors) > 300
    assert sorted(errors)[len(errors) // 2] < 0.1
    assert sorted(errors)[len(errors) * 9 // 10] < 0.2


def test_an_arrival_rate_follows_the_last_minutes() -> None:
    rates = ArrivalRates()
    assert rates.of(HIGH) == 0.0
    arrived = [0] * CLASSES
    rates.count(arrived, 0.0)
    for step in range(1, 1001):
        arrived[HIGH] += 3
        rates.count(arrived, float(step))
    assert rates.of(HIGH) == pytest.approx(3.0)
    assert rates.of(CRITICAL) == 0.0
    rates.count(arrived, 1000.0 + AVERAGE_S)  # no arrivals for one time constant
    assert rates.of(HIGH) == pytest.approx(3.0 * 0.368, rel=0.01)
