"""One model, one region, one type: the demand over the throughput, rounded up."""

import pytest
from hypothesis import given, strategies as some

from router.lab.plan.decision import program, solve
from router.lab.plan.observed import Place
from tests.examples import examples
from tests.lab.plan.decision.problems import pool, problem, segment

PLACE = Place("m")


def load(amount: float) -> dict[tuple[str, str, str], float]:
    return {("m", "", "gpu"): amount}


@pytest.mark.parametrize(
    ("amount", "utilisation", "count"),
    [(0.0, 1.0, 0), (0.2, 1.0, 1), (3.0, 1.0, 3), (3.0 + 1e-9, 1.0, 3), (3.1, 1.0, 4), (3, 0.5, 6)],
)
def test_the_replicas_for_a_load(amount: float, utilisation: float, count: int) -> None:
    one = problem(pool(), segments=(segment(load(amount)),), utilisation=utilisation)
    assert solve.applies(one)
    assert solve.closed_form(one).replicas == {pool().id: count}


def test_limits_hold() -> None:
    low = problem(pool(low=4), segments=(segment(load(2.5)),))
    assert solve.closed_form(low).replicas == {pool().id: 4}
    high = solve.closed_form(problem(pool(high=2), segments=(segment(load(4.0)),)))
    assert high.replicas == {pool().id: 2}
    assert high.short == [{PLACE: pytest.approx(0.5)}]


def test_a_start_cannot_serve_before_its_lead_time() -> None:
    early = segment(load(5.0), "other")
    late = segment(load(3.0), "gpu", first=1, end=2)
    found = solve.closed_form(problem(pool(now=4), segments=(early, late)))
    assert found.replicas == {pool().id: 4}  # none is started in vain, none is stopped too early
    assert found.short == [{PLACE: pytest.approx(0.2)}, {}]


@examples(60)
@given(
    early=some.integers(0, 6000).map(lambda n: n / 1000.0),
    late=some.integers(0, 6000).map(lambda n: n / 1000.0),
    now=some.integers(0, 5),
    low=some.integers(0, 3),
    more=some.integers(0, 4),
    start=some.sampled_from([0.1, 0.5, 3.0]),
    utilisation=some.sampled_from([0.6, 1.0]),
)
def test_the_closed_form_is_the_program(
    early: float, late: float, now: int, low: int, more: int, start: float, utilisation: float
) -> None:
    one = problem(
        pool(now=now, low=low, high=low + more, start=start),
        segments=(segment(load(early), "other"), segment(load(late), "gpu", first=1, end=2)),
        utilisation=utilisation,
    )
    assert solve.closed_form(one).replicas == program.solve(one).replicas
