"""Budgets: refused when used up, exact over restarts of a period, bounded under concurrency."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.admission.budget import HELD, SPENT, WITHIN, BudgetLimits, Hold, Spending
from router.core.periods import DAY_S, day_of, first_day_of, month_of, parse_date

NOON = parse_date("2026-11-29") * DAY_S + DAY_S / 2


def spending(**limits: float) -> Spending:
    made = Spending()
    made.limits = BudgetLimits(**limits)
    return made


@pytest.mark.parametrize(
    ("limits", "wait_s", "what"),
    [
        ({"tokens_per_day": 100.0}, DAY_S / 2, "tokens per day"),
        ({"cost_per_day": 1.0}, DAY_S / 2, "cost per day"),
        ({"tokens_per_month": 100.0}, DAY_S * 1.5, "tokens per month"),
        ({"cost_per_month": 1.0}, DAY_S * 1.5, "cost per month"),
        ({"tokens_per_day": 10.0, "cost_per_month": 1.0}, DAY_S * 1.5, "cost per month"),
    ],
)
def test_a_used_up_budget_is_refused_until_it_renews(
    limits: dict[str, float], wait_s: float, what: str
) -> None:
    ours = spending(**limits)
    ours.charge(99, 0.99, 50, NOON)
    if "tokens_per_day" in limits and len(limits) == 2:
        ours.limits = BudgetLimits(**{**limits, "tokens_per_day": 1000.0})
    assert ours.ask(5.0, 0.1, NOON) == WITHIN
    ours.release(5.0, 0.1)
    ours.limits = BudgetLimits(**limits)
    ours.charge(1, 0.01, 1, NOON)
    assert ours.ask(1.0, 0.0, NOON) == SPENT
    assert (ours.wait_s, ours.what) == (wait_s, what)
    assert ours.holds == 0
    assert ours.ask(1.0, 0.0, NOON + wait_s - 0.001) == SPENT
    assert ours.ask(1.0, 0.0, NOON + wait_s) == WITHIN


def test_a_request_is_charged_to_the_day_of_its_end() -> None:
    ours = spending(tokens_per_day=100.0)
    assert ours.ask(10.0, 0.0, NOON) == WITHIN
    ours.release(10.0, 0.0)
    ours.charge(200, 0.0, 200, NOON + DAY_S)
    assert ours.ask(10.0, 0.0, NOON) == WITHIN
    assert ours.ask(10.0, 0.0, NOON + DAY_S) == SPENT


def test_alone_a_request_is_admitted_as_long_as_anything_is_left() -> None:
    ours = spending(tokens_per_day=100.0)
    ours.charge(99, 0.0, 1, NOON)
    assert ours.ask(5000.0, 0.0, NOON) == WITHIN


def test_running_requests_hold_what_they_are_expected_to_use() -> None:
    ours = spending(tokens_per_day=100.0, cost_per_month=10.0)
    assert ours.ask(60.0, 1.0, NOON) == WITHIN
    assert ours.ask(60.0, 1.0, NOON) == HELD
    assert ours.wait_s == 1.0
    assert ours.ask(40.0, 9.5, NOON) == HELD
    assert ours.ask(40.0, 9.0, NOON) == WITHIN
    hold = Hold(ours, 60.0, 1.0)
    hold.release()
    hold.release()
    assert (ours.holds, ours.held_tokens) == (1, 40.0)
    assert ours.ask(60.0, 1.0, NOON) == WITHIN


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3)), max_size=60))
def test_with_the_true_amounts_a_budget_is_exceeded_by_one_request_at_most(
    asked: list[tuple[int, int]],
) -> None:
    """Each element is the size of a request, and how many running requests end after it."""
    ours, running, used = spending(tokens_per_day=300.0), [], 0
    for size, ends in asked:
        if ours.ask(float(size), 0.0, NOON) == WITHIN:
            running.append((Hold(ours, float(size), 0.0), size))
        for hold, tokens in running[:ends]:
            hold.release()
            ours.charge(tokens, 0.0, tokens, NOON)
            used += tokens
        del running[:ends]
    for hold, tokens in running:
        hold.release()
        used += tokens
    assert used < 300 + 50
    assert (ours.holds, ours.held_tokens, ours.held_cost) == (0, 0.0, 0.0)


def test_the_expected_output_is_that_of_a_long_answer() -> None:
    ours = spending(tokens_per_day=1e9)
    assert ours.expected_output(None) == 1024
    assert ours.expected_output(10) == 10
    for _ in range(400):
        ours.charge(3, 0.0, 2, NOON)
    assert ours.expected_output(None) == 2
    ours.charge(500, 0.0, 500, NOON)
    for _ in range(30):
        ours.charge(0, 0.0, 0, NOON)  # A refused request does not lower it.
        ours.charge(3, 0.0, 2, NOON)
    assert ours.expected_output(None) > 250
    assert ours.expected_output(1 << 30) < 500  # A huge limit holds no more.


@pytest.mark.parametrize("jump_s", [DAY_S, 400 * DAY_S, -3 * DAY_S, -1e10])
def test_a_clock_that_jumps_forth_and_back_clears_no_budget(jump_s: float) -> None:
    ours = spending(tokens_per_day=100.0)
    ours.charge(100, 0.0, 10, NOON)
    assert ours.ask(1.0, 0.0, NOON + jump_s) == WITHIN
    ours.release(1.0, 0.0)
    ours.charge(5, 0.0, 5, NOON + jump_s)
    assert ours.ask(1.0, 0.0, NOON) == SPENT


def test_few_periods_are_remembered() -> None:
    ours = spending(tokens_per_day=100.0)
    for number in range(1000):
        ours.charge(1, 0.0, 1, NOON + number * DAY_S)
    assert (len(ours._days), len(ours._months)) == (4, 4)


def test_the_stored_amount_and_the_own_amount_are_one_sum() -> None:
    ours = spending(tokens_per_month=100.0)
    ours.charge(40, 0.0, 1, NOON)
    month = ours.month(month_of(day_of(NOON)))
    month.stored_tokens = 59.0
    assert ours.ask(1.0, 0.0, NOON) == WITHIN
    month.stored_tokens = 60.0
    assert ours.ask(1.0, 0.0, NOON) == SPENT
    assert ours.ask(1.0, 0.0, first_day_of(month_of(day_of(NOON)) + 1) * DAY_S) != SPENT
