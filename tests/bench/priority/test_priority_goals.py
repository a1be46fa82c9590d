"""The part `goals`: its figures, its verdicts, and each goal missed on purpose."""

import pytest

from bench.findings.intervals import PAIRS_MIN
from bench.priority.simulated import goals
from bench.priority.simulated.goals import (
    BACKLOG,
    BOUNDS_S,
    NO_CLASSES,
    NONE,
    SATURATED,
    SHIPPED,
    STARVING,
    Case,
    Length,
    Task,
)
from bench.priority.simulated.seen import Run

SEEDS = range(1, PAIRS_MIN + 1)


def runs(
    *, p99_s: float = 0.3, normal_s: float = 1.0, tokens_s: float = 100.0, fair: float = 0.99
) -> list[Run]:
    """One run per seed; the figures of two seeds differ by one in a thousand."""
    found = []
    for seed in SEEDS:
        by = 1.0 + 0.001 * seed
        run = Run("case", SHIPPED, seed, tokens_s=tokens_s * by)
        run.ttft_s = {"high": [p99_s / 3 * by, p99_s / 2, p99_s * by], "normal": [normal_s] * 3}
        run.longest_wait_s = {"high": 3.0, "batch": 100.0 + seed}
        run.jain = {"high": 1.0, "batch": fair}
        found.append(run)
    return found


# -- figures --------------------------------------------------------------------------------------


# -- verdicts -------------------------------------------------------------------------------------


def test_the_least_fair_class_and_the_longest_wait_decide() -> None:
    assert goals.fairness("case", runs()).met
    assert goals.fairness("case", runs(fair=0.75)).missed
    assert goals.fairness("case", []).value is None
    assert goals.starvation("case", runs(), {"high": 5.0, "batch": 150.0}).met
    verdict = goals.starvation("case", runs(), {"high": 5.0, "batch": 104.0})
    assert not verdict.met and verdict.value == pytest.approx(105.0 / 104.0)


# -- each goal is missed by an order that ignores it ----------------------------------------------


def measured(case: Case, contestant: str, length: Length) -> list[Run]:
    return [Task(case, contestant, seed, length).run() for seed in SEEDS]


@pytest.fixture(scope="module")
def one_line() -> list[Run]:
    """A backlog in one line for all classes and tenants."""
    return measured(BACKLOG, NO_CLASSES, Length(15.0, 15.0))


def test_an_order_that_ignores_classes_does_not_prefer_high(one_line: list[Run]) -> None:
    assert goals.high_before_normal("case", one_line).missed


def test_an_order_that_ignores_tenants_is_unfair(one_line: list[Run]) -> None:
    assert goals.fairness("case", one_line).missed


def test_an_order_that_starves_batch_exceeds_its_bound() -> None:
    found = measured(BACKLOG, STARVING, Length(5.0, 55.0))
    bounds = {**BOUNDS_S, "batch": 40.0}
    verdict = goals.starvation("case", found, bounds)
    assert verdict.missed and verdict.note == "batch"


def test_without_a_queue_high_is_late() -> None:
    verdict = goals.high_ttft("case", measured(SATURATED, NONE, Length(10.0, 10.0)))
    assert verdict.missed


def test_the_command_judges_every_goal() -> None:
    length = Length(5.0, 5.0)
    found = goals.found(
        [
            Task(case, contestant, 1, length).run()
            for case in (SATURATED,)
            for contestant in case.contestants
        ],
        length,
    )
    assert len(found.verdicts) == 7
    assert not any(verdict.met for verdict in found.verdicts)  # one seed decides nothing
