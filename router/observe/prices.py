"""Computes the cost of a request's tokens from the prices of models and of priority classes.

The price of a million tokens is configured for each model, separately for uncached prompt tokens,
cached prompt tokens and output tokens. The factor of the request's priority class multiplies the
cost. All prices have one currency, which the program does not know.

Must never: return a negative cost, also for token counts that an engine reports wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.config.model import Config, Price
from router.config.model.tenants import ANY

_MILLION: Final = 1e6


class _Price:
    """The prices of one token of one model."""

    __slots__ = ("cached", "output", "prompt")

    def __init__(self, price: Price) -> None:
        self.prompt = price.input / _MILLION
        self.cached = (price.input if price.cached is None else price.cached) / _MILLION
        self.output = price.output / _MILLION


class Prices:
    """The prices of all models, and the factors of all priority classes."""

    __slots__ = ("_any", "_by_model", "_default", "_factors")

    def __init__(
        self,
        prices: Mapping[str, Price],
        factors: Mapping[str, float] | None = None,
        default: str = "",
    ) -> None:
        """`factors`: the factor of each class; 1 if it is missing. `default`: the class of requests
        without a class.
        """
        self._by_model = {model: _Price(price) for model, price in prices.items() if model != ANY}
        self._any = _Price(prices[ANY]) if ANY in prices else None
        self._factors = dict(factors or {})
        self._default = self._factors.get(default, 1.0)

    def cost_of(
        self, model: str | None, urgency: str, prompt: int, cached: int, output: int
    ) -> float:
        """Return the cost of a request's tokens; -1: the model has no price.

        `prompt` includes `cached`. `urgency`: the name of the request's class.
        """
        price = self._by_model.get(model, self._any) if model is not None else self._any
        if price is None:
            return -1.0
        if cached > prompt:
            cached = prompt
        fresh = prompt - cached
        cost = fresh * price.prompt + cached * price.cached + output * price.output
        return cost * self._factors.get(urgency, self._default)


def prices_of(config: Config) -> Prices:
    """Return the prices that a configuration states."""
    factors = {name: rules.price_factor for name, rules in config.classes.by_name.items()}
    return Prices(config.usage.prices, factors, config.priority.default)
