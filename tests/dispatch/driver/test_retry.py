"""The retry table row by row, and the budget that limits retry storms."""

from itertools import product

import pytest
from hypothesis import given, strategies as st

from router.config.model import Retry
from router.core.errors import Reason
from router.dispatch.driver.retry import Budget, RetryChoice, judge

BOOLS = (False, True)
COMBINATIONS = [
    {"unread": a, "repeatable": b, "known_dead": c} for a, b, c in product(BOOLS, repeat=3)
]
UNEXECUTED = (
    *(Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT, Reason.REGION_NOT_ALLOWED),
    *(Reason.CREDENTIAL_REFUSED, Reason.MODEL_REFUSED),
)
LOST = (
    Reason.REPLICA_RESET,
    Reason.REPLICA_STALLED,
    Reason.EMPTY_STREAM,
    Reason.STREAM_ERROR,
)


@pytest.mark.parametrize("reason", list(Reason))
def test_the_table(reason: Reason) -> None:
    for flags in COMBINATIONS:
        assert judge(reason, **flags) is expected(reason, **flags), flags


def expected(reason: Reason, **flags: bool) -> RetryChoice:
    if reason in UNEXECUTED:
        return RetryChoice.ELSEWHERE
    if reason is Reason.REPLICA_BUSY:
        return RetryChoice.BUDGET
    if reason is Reason.REPLICA_RESET and flags["unread"]:
        return RetryChoice.HERE
    if reason in LOST and flags["repeatable"]:
        return RetryChoice.ELSEWHERE if flags["known_dead"] else RetryChoice.BUDGET
    return RetryChoice.NO


@pytest.mark.parametrize(
    ("share", "minimum", "requests", "allowed"),
    [
        (0.2, 3, 0, 3),
        (0.2, 3, 10, 3),
        (0.2, 3, 15, 3),
        (0.2, 3, 20, 4),
        (0.2, 3, 100, 20),
        (0.0, 0, 100, 0),
        (0.0, 2, 100, 2),
        (1.0, 0, 5, 5),
    ],
)
def test_how_many_retries_may_be_under_way(
    share: float, minimum: int, requests: int, allowed: int
) -> None:
    budget = Budget(Retry(budget=share, budget_min=minimum))
    budget.requests = requests
    taken = 0
    while taken <= 200 and budget.take():
        taken += 1
    assert taken == allowed
    if allowed:
        budget.give()
        assert budget.take()
    assert not budget.take()


@given(st.lists(st.booleans(), max_size=100))
def test_taking_and_giving_balance(takes: list[bool]) -> None:
    budget = Budget(Retry(budget=0.2, budget_min=3))
    budget.requests = 20
    held = 0
    for take in takes:
        if take:
            held += budget.take()
        elif held:
            budget.give()
            held -= 1
        assert budget.retries == held <= 4


def test_new_rules_count_from_now_on() -> None:
    budget = Budget(Retry(budget=0.0, budget_min=3))
    assert [budget.take() for _ in range(4)] == [True, True, True, False]
    budget.rules = Retry(budget=0.0, budget_min=1)
    budget.give()
    assert not budget.take()
    assert budget.retries == 2
