"""A tenant's limits: exact over time for any estimates; a refusal consumes nothing."""

import math

import pytest
from hypothesis import given, strategies as st

from router.admission.expected_output import ASSUMED
from router.admission.limits import Account, Bucket, Grant, LimitCheck
from tests.share.limits_helpers import Spread

MINUTE_S = 60.0


# With the account of one router, and with three routers that share the limits of a tenant.
over = pytest.mark.parametrize("routers", [1, 3])


def account(
    routers: int,
    concurrency: int | None = None,
    requests: float | None = None,
    tokens: float | None = None,
) -> Account | Spread:
    if routers == 1:
        return Account(concurrency, requests, tokens, 0.0)
    return Spread(routers, (concurrency, requests, tokens))


@over
def test_a_minutes_worth_at_once_and_then_evenly(routers: int) -> None:
    ours = account(routers, requests=60)
    assert [ours.ask(1, 0.0) for _ in range(60)] == [LimitCheck.WITHIN] * 60
    assert ours.ask(1, 0.0) == LimitCheck.REQUESTS
    assert ours.wait_s == pytest.approx(1.0)
    assert ours.ask(1, 0.5) == LimitCheck.REQUESTS
    assert ours.wait_s == pytest.approx(0.5)
    assert ours.ask(1, 1.0) == LimitCheck.WITHIN
    assert ours.ask(1, 1.0) == LimitCheck.REQUESTS


@over
def test_concurrency(routers: int) -> None:
    ours = account(routers, concurrency=2)
    assert [ours.ask(1, 0.0) for _ in range(3)] == [
        LimitCheck.WITHIN,
        LimitCheck.WITHIN,
        LimitCheck.CONCURRENCY,
    ]
    assert ours.wait_s == 0.0, "nobody knows when one of them ends"
    ours.settle(1, None, None, 1.0)
    assert ours.ask(1, 1.0) == LimitCheck.WITHIN


@over
def test_a_grant_is_settled_with_the_true_cost(routers: int) -> None:
    ours = account(routers, tokens=6000)
    assert ours.ask(1000, 0.0) == LimitCheck.WITHIN
    ours.settle(1000, 400, 100, 0.0)  # 600 tokens are returned
    assert ours.left(0.0)[1] == pytest.approx(5600)
    assert ours.ask(100, 0.0) == LimitCheck.WITHIN
    ours.settle(100, 8000, 7900, 0.0)  # the actual use was far higher: a debt
    assert ours.left(0.0)[1] == pytest.approx(-2400)
    ours.settle(0, 1_000_000, 0, 0.0)  # a debt is at most the amount of a minute
    assert ours.left(0.0)[1] == -6000
    ours.settle(3600, 0, 0, 0.0)
    assert ours.ask(1, 10.0) == LimitCheck.TOKENS
    assert ours.wait_s == pytest.approx(14.01)
    assert ours.ask(1, 10.0 + 14.01) == LimitCheck.WITHIN


@over
def test_a_request_reserves_what_it_may_use_and_at_most_half_a_minute(routers: int) -> None:
    ours = account(routers, tokens=10_000)
    for _ in range(300):
        ours.ask(0, 0.0)
        ours.settle(0, 1, 1, 0.0)
    assert ours.reserved(50, 4000, 1) == 4050
    assert ours.reserved(50, 4000, 2) == 5000
    assert ours.reserved(50, -1, 1) == 50 + ASSUMED
    assert ours.reserved(50, 0, 1) == 50
    assert ours.reserved(6000, 4000, 1) == 6000
    assert ours.reserved(60_000, 4000, 1) == 10_000


@over
def test_requests_above_the_amount_of_a_minute_give_nothing_back_that_was_not_taken(
    routers: int,
) -> None:
    ours = account(routers, tokens=1000)
    for second in range(0, 600, 60):
        taken = ours.reserved(50_000, 50_000, 1)
        assert ours.ask(taken, float(second)) == LimitCheck.WITHIN
        assert ours.ask(taken, float(second)) == LimitCheck.TOKENS
        ours.settle(taken, 1000, 1000, float(second))
        assert ours.left(float(second))[1] == 0


@over
def test_a_fresh_key_cannot_run_up_a_debt_of_many_minutes(routers: int) -> None:
    ours = account(routers, tokens=1000)
    taken = ours.reserved(10, -1, 1)
    admitted = [ours.ask(taken, 0.0) for _ in range(30)].count(LimitCheck.WITHIN)
    assert admitted == 2
    for _ in range(admitted):
        ours.settle(taken, 900, 890, 0.0)
    assert ours.ask(taken, 0.0) == LimitCheck.TOKENS
    assert ours.wait_s <= 90


def test_a_grant_is_settled_once() -> None:
    ours = Account(1, None, 600, 0.0)
    assert ours.ask(100, 0.0) == LimitCheck.WITHIN
    grant = Grant(ours, 100, 80)
    for _ in range(3):
        grant.settle(40, 10, 0.0)
    assert ours.under_way == 0
    assert ours.left(0.0)[1] == pytest.approx(560)


@over
def test_new_limits_keep_what_is_used(routers: int) -> None:
    ours = account(routers, concurrency=1, requests=10, tokens=100)
    assert ours.ask(50, 0.0) == LimitCheck.WITHIN
    ours.adopt(2, 20, None, 0.0)
    assert ours.ask(50, 0.0) == LimitCheck.WITHIN
    assert ours.left(0.0) == (pytest.approx(17.0), None)
    ours.adopt(2, None, 100, 0.0)
    assert ours.ask(1, 0.0) == LimitCheck.CONCURRENCY


def test_a_clock_that_stops_or_goes_back_adds_no_tokens() -> None:
    bucket = Bucket(60.0, 100.0)
    bucket.take(60.0)
    assert bucket.level(50.0) == 0.0
    assert bucket.level(100.0) == 0.0
    assert bucket.level(101.0) == pytest.approx(1.0)


GAPS = st.lists(st.tuples(st.floats(0, 30), st.integers(0, 500)), max_size=60)


@over
@given(GAPS, st.floats(1, 1e5))
def test_the_reported_wait_is_exact(
    routers: int, gaps: list[tuple[float, int]], rate: float
) -> None:
    ours = account(routers, tokens=rate)
    now = 0.0
    for gap_s, tokens in gaps:
        now += gap_s
        if routers > 1:
            tokens = min(tokens, int(rate))  # As `reserved` does: no debt is cut off.
        if ours.ask(tokens, now) == LimitCheck.WITHIN:
            continue
        wait_s = ours.wait_s
        assert wait_s > 0.0
        if wait_s > 1e-3:
            assert ours.ask(tokens, now + wait_s * 0.99) == LimitCheck.TOKENS
        now += math.nextafter(wait_s, math.inf)
        assert ours.ask(tokens, now) == LimitCheck.WITHIN


@over
@given(GAPS, st.integers(1, 100))
def test_no_window_sees_more_than_the_bucket_and_its_rate(
    routers: int, gaps: list[tuple[float, int]], per_minute: int
) -> None:
    ours = account(routers, requests=per_minute)
    now, allowed = 0.0, []
    for gap_s, _ in gaps:
        now += gap_s
        if ours.ask(1, now) == LimitCheck.WITHIN:
            allowed.append(now)
    for first, begin in enumerate(allowed):
        for count, end in enumerate(allowed[first:], 1):
            assert count <= per_minute * (1 + (end - begin) / MINUTE_S) + 1e-6
