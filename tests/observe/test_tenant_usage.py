"""Tenant usage: every figure in its column, costs by configured prices, bounded memory."""

import pytest
from hypothesis import given, strategies as st

from router.config.model import Price
from router.core.urgency import CLASSES
from router.observe.prices import Prices
from router.observe.tenant_usage import NO_KEY, OTHERS, TENANTS_MAX, TenantUsage, Used, together

FIGURES = ("requests", "prompt", "cached", "output", "estimated", "unpriced", "cost")


def figures(used: Used) -> dict[str, float]:
    return {name: getattr(used, name) for name in FIGURES if getattr(used, name)}


def test_a_request_is_counted_for_its_tenant_and_class() -> None:
    usage = TenantUsage()
    usage.count("acme", "high", "m", 100, 60, 20, False)
    usage.count("acme", "high", "m", 10, 0, 0, True)
    usage.count("acme", "low", "m", 0, 0, 0, False)
    assert figures(usage.tenants["acme"]["high"]) == {
        "requests": 2,
        "prompt": 110,
        "cached": 60,
        "output": 20,
        "estimated": 1,
        "unpriced": 130,
    }
    assert figures(usage.tenants["acme"]["low"]) == {"requests": 1}
    assert figures(together(usage.tenants["acme"]))["requests"] == 3


def test_tokens_without_a_price_are_counted_separately() -> None:
    usage = TenantUsage()
    usage.count("acme", "high", "m", 10, 0, 5, False)
    assert not together(usage.tenants["acme"]).is_priced
    usage.prices = Prices({"m": Price(input=1.0)})
    usage.count("acme", "high", "other", 10, 0, 5, False)
    usage.count("acme", "high", None, 10, 0, 5, False)
    assert not together(usage.tenants["acme"]).is_priced
    usage.count("acme", "high", "m", 10, 0, 5, False)
    assert together(usage.tenants["acme"]).is_priced
    assert together(usage.tenants["acme"]).unpriced == 45


def test_a_new_price_holds_from_then_on() -> None:
    usage = TenantUsage()
    for price in (1.0, 3.0):
        usage.prices = Prices({"m": Price(input=price)})
        usage.count("acme", "high", "m", 1_000_000, 0, 0, False)
    assert together(usage.tenants["acme"]).cost == pytest.approx(4.0)


def test_a_hundred_thousand_tenants_are_a_thousand_and_the_others() -> None:
    usage = TenantUsage()
    for number in range(100_000):
        usage.count(f"t{number}", "low", "m", 1, 0, 0, False)
    usage.count(NO_KEY, "low", "m", 1, 0, 0, False)
    assert len(usage.tenants) == TENANTS_MAX + 2
    assert together(usage.tenants[OTHERS]).prompt == 100_000 - TENANTS_MAX
    assert together(usage.tenants[NO_KEY]).prompt == 1
    usage.count("t7", "low", "m", 1, 0, 0, False)  # a tenant that has a name keeps it
    assert together(usage.tenants["t7"]).requests == 2


requests = st.tuples(
    st.sampled_from(["acme", "umbrella", NO_KEY]),
    st.sampled_from(CLASSES),
    st.sampled_from(["m", "free", "unknown", None]),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
)


@given(st.lists(requests, max_size=30))
def test_nothing_is_lost_among_tenants_and_no_cost_falls(made: list[tuple[str, ...]]) -> None:
    usage = TenantUsage()
    usage.prices = Prices({"m": Price(input=1.0, cached=0.1, output=2.0), "free": Price(input=0.0)})
    cost = 0.0
    for tenant, urgency, model, prompt, output in made:
        usage.count(tenant, urgency, model, prompt, prompt // 2, output, False)  # type: ignore[arg-type, operator]
        now = sum(together(each).cost for each in usage.tenants.values())
        assert now >= cost
        cost = now
    totals = [together(each) for each in usage.tenants.values()]
    assert sum(used.requests for used in totals) == len(made)
    assert sum(used.prompt + used.output for used in totals) == sum(
        prompt + output for *_, prompt, output in made
    )
