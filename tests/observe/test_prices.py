"""Costs: by model, kind of token and class; never negative."""

import pytest
from hypothesis import given, strategies as st

from router.config.load import parse
from router.config.model import Price
from router.core.errors import ConfigError
from router.observe.prices import Prices, prices_of

M = Price(input=2.0, cached=0.5, output=8.0)
MILLION = 1_000_000


def test_each_kind_of_token_has_its_price() -> None:
    prices = Prices({"m": M, "plain": Price(input=2.0)})
    cost = prices.cost_of("m", "normal", MILLION, 400_000, 100_000)
    assert cost == pytest.approx(0.6 * 2.0 + 0.4 * 0.5 + 0.1 * 8.0)
    assert prices.cost_of("plain", "normal", MILLION, 400_000, 9) == pytest.approx(2.0)


def test_a_model_without_a_price_has_the_price_of_every_other_model() -> None:
    assert Prices({"m": M}).cost_of("x", "normal", 1, 0, 1) == -1.0
    assert Prices({"m": M}).cost_of(None, "normal", 1, 0, 1) == -1.0
    prices = Prices({"m": M, "*": Price(input=1.0)})
    assert prices.cost_of("x", "normal", MILLION, 0, 0) == pytest.approx(1.0)
    assert prices.cost_of(None, "normal", MILLION, 0, 0) == pytest.approx(1.0)
    assert prices.cost_of("m", "normal", MILLION, 0, 0) == pytest.approx(2.0)


def test_an_urgent_class_costs_more() -> None:
    config = parse(
        "replicas: [http://a:1]\n"
        "usage: {prices: {m: {input: 2}}}\n"
        "priority: {default: low}\n"
        "classes: {critical: {price_factor: 3}, low: {price_factor: 0.5}}\n"
    )
    prices = prices_of(config)
    costs = {
        name: prices.cost_of("m", name, MILLION, 0, 0)
        for name in ("critical", "normal", "low", "none")
    }
    # A request without a class is of the default class.
    assert costs == {"critical": 6.0, "normal": 2.0, "low": 1.0, "none": 1.0}


@pytest.mark.parametrize("value", ["-1", ".nan", ".inf", "1e10", "free"])
@pytest.mark.parametrize("field", ["input", "cached", "output"])
def test_an_impossible_price_is_refused(field: str, value: str) -> None:
    price = {"input": "1", field: value}
    text = ", ".join(f"{name}: {amount}" for name, amount in price.items())
    with pytest.raises(ConfigError) as caught:
        parse(f"replicas: [http://a:1]\nusage: {{prices: {{m: {{{text}}}}}}}\n")
    assert f"usage.prices.m.{field}" in str(caught.value.problems)


@pytest.mark.parametrize("value", ["-1", ".nan"])
def test_an_impossible_factor_is_refused(value: str) -> None:
    with pytest.raises(ConfigError):
        parse(f"replicas: [http://a:1]\nclasses: {{high: {{price_factor: {value}}}}}\n")


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_no_report_of_an_engine_gives_money_back(prompt: int, cached: int, output: int) -> None:
    assert Prices({"m": M}).cost_of("m", "high", prompt, cached, output) >= 0.0
