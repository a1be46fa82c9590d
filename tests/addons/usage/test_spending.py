"""Budgets: refused when used up, exact over restarts of a period, bounded under concurrency."""

import pytest
from hypothesis import given, strategies as st

from router.addons.usage.budgets import WallClock
from router.addons.usage.spending import HELD, SPENT, WITHIN, Spending
from router.admission.expected_output import ASSUMED, ExpectedOutput
from router.config.keys import KeyLine
from router.core.periods import DAY_S, MONTH, day_of, first_day_of, number_of, parse_date
from router.intake.keys import Key

# A Saturday.
NOON = parse_date("2026-11-28") * DAY_S + DAY_S / 2


def ask(ours: Spending, tokens: float, cost: float, wall: float, now: float | None = None) -> int:
    """Without `now`, the clock has not jumped."""
    return ours.ask(tokens, cost, wall, wall if now is None else now)


def spending(**limits: float) -> Spending:
    made = Spending()
    limit(made, **limits)
    return made


def limit(spending: Spending, **limits: float) -> None:
    spending.limit(Key(KeyLine(name="acme", hash="", **limits)).budgets)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "wait_s", "what"),
    [
        ({"tokens_per_day": 100.0}, DAY_S / 2, "tokens per day"),
        ({"cost_per_day": 1.0}, DAY_S / 2, "cost per day"),
        ({"tokens_per_week": 100.0}, DAY_S * 1.5, "tokens per week"),
        ({"cost_per_week": 1.0}, DAY_S * 1.5, "cost per week"),
        ({"tokens_per_month": 100.0}, DAY_S * 2.5, "tokens per month"),
        ({"cost_per_month": 1.0}, DAY_S * 2.5, "cost per month"),
        ({"tokens_per_day": 10.0, "cost_per_month": 1.0}, DAY_S * 2.5, "cost per month"),
    ],
)
def test_a_used_up_budget_is_refused_until_it_renews(
    limits: dict[str, float], wait_s: float, what: str
) -> None:
    ours = spending(**limits)
    ours.charge(99, 0.99, 50, NOON)
    if "tokens_per_day" in limits and len(limits) == 2:
        limit(ours, **{**limits, "tokens_per_day": 1000.0})
    assert ask(ours, 5.0, 0.1, NOON) == WITHIN
    ours.release(5.0, 0.1)
    limit(ours, **limits)
    ours.charge(1, 0.01, 1, NOON)
    assert ask(ours, 1.0, 0.0, NOON) == SPENT
    assert (ours.wait_s, ours.what) == (wait_s, what)
    assert ours.holds == 0
    assert ask(ours, 1.0, 0.0, NOON + wait_s - 0.001) == SPENT
    assert ask(ours, 1.0, 0.0, NOON + wait_s) == WITHIN


def test_a_request_is_charged_to_the_day_of_its_end() -> None:
    ours = spending(tokens_per_day=100.0)
    assert ask(ours, 10.0, 0.0, NOON) == WITHIN
    ours.release(10.0, 0.0)
    ours.charge(200, 0.0, 200, NOON + DAY_S)
    assert ask(ours, 10.0, 0.0, NOON) == WITHIN
    assert ask(ours, 10.0, 0.0, NOON + DAY_S) == SPENT


def test_alone_a_request_is_admitted_as_long_as_anything_is_left() -> None:
    ours = spending(tokens_per_day=100.0)
    ours.charge(99, 0.0, 1, NOON)
    assert ask(ours, 5000.0, 0.0, NOON) == WITHIN


def test_running_requests_hold_what_they_are_expected_to_use() -> None:
    ours = spending(tokens_per_day=100.0, cost_per_month=10.0)
    assert ask(ours, 60.0, 1.0, NOON) == WITHIN
    assert ask(ours, 60.0, 1.0, NOON) == HELD
    assert ours.wait_s == 1.0
    assert ask(ours, 40.0, 9.5, NOON) == HELD
    assert ask(ours, 40.0, 9.0, NOON) == WITHIN
    ours.release(60.0, 1.0)
    assert (ours.holds, ours.held_tokens) == (1, 40.0)
    assert ask(ours, 60.0, 1.0, NOON) == WITHIN


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3)), max_size=60))
def test_with_the_true_amounts_a_budget_is_exceeded_by_one_request_at_most(
    asked: list[tuple[int, int]],
) -> None:
    """Each element is the size of a request, and how many running requests end after it."""
    ours, running, used = spending(tokens_per_day=300.0), [], 0
    for size, ends in asked:
        if ask(ours, float(size), 0.0, NOON) == WITHIN:
            running.append(size)
        for tokens in running[:ends]:
            ours.release(float(tokens), 0.0)
            ours.charge(tokens, 0.0, tokens, NOON)
            used += tokens
        del running[:ends]
    for tokens in running:
        ours.release(float(tokens), 0.0)
        used += tokens
    assert used < 300 + 50
    assert (ours.holds, ours.held_tokens, ours.held_cost) == (0, 0.0, 0.0)


def test_a_tenant_cannot_lower_what_its_requests_hold() -> None:
    expected = ExpectedOutput()
    for _ in range(400):
        expected.learn(1)
    assert expected.of(4000, 1) == 4000
    assert expected.of(4000, 3) == 12_000
    assert expected.of(5, 1) == 5
    assert expected.of(0, 1) == 0
    assert expected.of(-1, 1) == ASSUMED
    assert expected.of(-1, 3) == 3 * ASSUMED
    expected.learn(50_000)
    for _ in range(30):
        expected.learn(0)  # A refused request does not lower it.
        expected.learn(2)
    assert 25_000 < expected.of(-1, 1) < 50_000
    assert expected.of(10, 1) == 10


@pytest.mark.parametrize("jump_s", [DAY_S, 400 * DAY_S, -3 * DAY_S, -1e10])
@pytest.mark.parametrize("period", ["day", "week", "month"])
def test_a_clock_that_jumps_grants_nothing(jump_s: float, period: str) -> None:
    """The budget renews when the period would have ended without the jump."""
    ours, clock, now = spending(**{f"tokens_per_{period}": 100.0}), WallClock(), 1000.0
    left_s = {"day": 0.5, "week": 1.5, "month": 2.5}[period] * DAY_S
    assert not clock.has_jumped(NOON, now)
    ours.charge(100, 0.0, 10, NOON)
    now += 5.0
    assert clock.has_jumped(NOON + jump_s + 5.0, now)
    assert clock.jumped_s == jump_s
    ours.carry(NOON + jump_s + 5.0, NOON + 5.0, now)
    assert ask(ours, 1.0, 0.0, NOON + jump_s + 5.0, now) == SPENT
    ours.charge(5, 0.0, 5, NOON + jump_s + 5.0)
    # It jumps back.
    assert clock.has_jumped(NOON + 10.0, now + 5.0)
    ours.carry(NOON + 10.0, NOON + jump_s + 10.0, now + 5.0)
    assert ask(ours, 1.0, 0.0, NOON + 10.0, now + 5.0) == SPENT
    assert ask(ours, 1.0, 0.0, NOON + left_s - 1.0, 1000.0 + left_s - 1.0) == SPENT
    assert ask(ours, 1.0, 0.0, NOON + left_s + 11.0, 1000.0 + left_s + 11.0) == WITHIN


def test_a_jump_counts_each_amount_once() -> None:
    ours = spending(tokens_per_day=100.0)
    for jumps in range(10):
        wall = NOON + (jumps % 2) * 400 * DAY_S
        assert ask(ours, 1.0, 0.0, wall, 0.0) == WITHIN
        ours.release(1.0, 0.0)
        ours.charge(9, 0.0, 9, wall)
        ours.carry(NOON + (1 - jumps % 2) * 400 * DAY_S, wall, 0.0)
    ours.charge(10, 0.0, 9, NOON)
    assert ask(ours, 1.0, 0.0, NOON, 0.0) == SPENT


def test_an_adjusted_clock_has_not_jumped() -> None:
    clock, wall = WallClock(), NOON
    for now in range(0, 100_000, 3600):
        assert not clock.has_jumped(wall, float(now))
        wall += 3600.0 + 30.0


def test_few_periods_are_remembered() -> None:
    ours = spending(tokens_per_day=100.0)
    for number in range(1000):
        ours.charge(1, 0.0, 1, NOON + number * DAY_S)
    assert {len(window._periods) for window in ours.windows} == {4}
    for number in range(100):
        ours.enter(NOON - number * 40 * DAY_S)
        ours.carry(NOON, NOON - number * 40 * DAY_S, 0.0)
    assert {len(window._carried) for window in ours.windows} == {4}


def test_the_stored_amount_and_the_own_amount_are_one_sum() -> None:
    ours = spending(tokens_per_month=100.0)
    ours.charge(40, 0.0, 1, NOON)
    month = ours.windows[MONTH].period(day_of(NOON))
    month.stored_tokens = 59.0
    assert ask(ours, 1.0, 0.0, NOON) == WITHIN
    month.stored_tokens = 60.0
    assert ask(ours, 1.0, 0.0, NOON) == SPENT
    assert (
        ask(ours, 1.0, 0.0, first_day_of(MONTH, number_of(MONTH, day_of(NOON)) + 1) * DAY_S)
        != SPENT
    )
