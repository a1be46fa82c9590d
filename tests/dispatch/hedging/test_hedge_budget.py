"""The budget of copies: payments, its maximum, and the quantile that follows from it."""

import pytest
from hypothesis import given, strategies as st

from router.dispatch.hedging.hedge_budget import HOLD_S, PROMPTS, QUANTILE_LEAST, HedgeBudget

# Events of a budget: a request of some tokens, a copy, a copy that was never sent, and time.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("request"), st.integers(0, 100_000)),
        st.tuples(st.just("copy"), st.integers(0, 100_000)),
        st.tuples(st.just("unsent"), st.integers(0, 100_000)),
        st.tuples(st.just("time"), st.integers(0, 60)),
    ),
    max_size=300,
)


@given(steps, st.floats(0.0, 1.0))
def test_copies_never_cost_more_than_their_share_of_all(
    happened: list[tuple[str, int]], share: float
) -> None:
    budget = HedgeBudget(share)
    all_tokens = copied = 0
    for what, number in happened:
        if what == "request":
            budget.deposit(number, hedgeable=True)
            all_tokens += max(number, 1)
        elif what == "time":
            budget.tick(float(number))
        elif budget.fits(number):
            budget.take(number)
            if what == "copy":
                copied += max(number, 1)
            else:
                budget.give_back(number)
        assert budget.level >= 0.0
        assert copied + budget.level <= share * all_tokens * (1 + 1e-9) + 1e-9


def filled(prompts: list[int], share: float = 0.05) -> HedgeBudget:
    budget = HedgeBudget(share)
    for tokens in prompts:
        budget.deposit(tokens, hedgeable=True)
    return budget


def test_it_begins_empty() -> None:
    budget = HedgeBudget(0.05)
    assert not budget.fits(0)
    assert not filled([100] * 19).fits(100)
    assert filled([100] * 21).fits(100)


def test_a_quiet_hour_is_not_spent_at_once() -> None:
    """The budget keeps deposits of thirty seconds, or of four median prompts if that is more."""
    busy = HedgeBudget(0.05)
    for _ in range(3600):
        for _ in range(100):
            busy.deposit(1000, hedgeable=True)
        busy.tick(1.0)
    assert busy.level == pytest.approx(0.05 * 100 * 1000 * HOLD_S, rel=0.1)
    quiet = HedgeBudget(0.05)
    for _ in range(3600):
        quiet.deposit(1000, hedgeable=True)
        quiet.tick(60.0)
    assert quiet.level == pytest.approx(PROMPTS * 1000, rel=0.1)


def test_one_enormous_prompt_does_not_make_room_for_itself() -> None:
    budget = filled([1000] * 1000)
    budget.tick(1000.0)
    budget.deposit(1_000_000, hedgeable=True)
    budget.tick(1000.0)
    budget.deposit(1000, hedgeable=True)
    assert budget.level <= PROMPTS * 1000 * 1.2


def test_without_token_counts_the_budget_is_a_share_of_requests() -> None:
    budget = filled([0] * 100)
    copies = 0
    while budget.fits(0):
        budget.take(0)
        copies += 1
    assert copies in (4, 5)


def test_a_lower_share_from_a_reload_counts_at_once() -> None:
    budget = filled([1000] * 1000)
    budget.adopt(0.05)
    assert budget.fits(1000)
    budget.adopt(0.0)
    assert not budget.fits(0)
    budget.deposit(1000, hedgeable=True)
    assert budget.level == 0.0


@pytest.mark.parametrize(
    ("share", "hedgeable", "quantile"),
    [
        (0.05, 0.2, 0.75),
        (0.05, 1.0, 0.95),
        (0.02, 0.2, 0.9),
        (0.05, 0.06, 0.5),  # a copy is not sent before half of the requests have answered
        (0.05, 0.0, 0.5),
        (0.0, 0.2, 0.999),
    ],
)
def test_the_quantile_is_what_the_budget_pays(
    share: float, hedgeable: float, quantile: float
) -> None:
    budget = HedgeBudget(share)
    for number in range(100):
        budget.deposit(500, hedgeable=number < 100 * hedgeable)
    assert budget.hedgeable_share == pytest.approx(hedgeable)
    assert budget.quantile == pytest.approx(quantile)


def test_the_hedgeable_share_is_of_late() -> None:
    budget = HedgeBudget(0.05)
    for second in range(300):
        for number in range(10):
            budget.deposit(500, hedgeable=second < 150 or number < 2)
        budget.tick(1.0)
    assert budget.hedgeable_share == pytest.approx(0.2, abs=0.02)


def test_without_requests_nothing_is_hedgeable() -> None:
    budget = HedgeBudget(0.1)
    assert budget.hedgeable_share == 0.0
    assert budget.quantile == QUANTILE_LEAST
