"""Declares the section `usage`: token counts, prices, and the file that keeps them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.model.setting_types import Amount, Frozen, Restart, Seconds


class Price(Frozen, frozen=True):
    """The price of a million tokens of one model. All prices have the same currency.

    `classes.*.price_factor` multiplies the cost.
    """

    input: Amount  # The price of prompt tokens.
    # The price of prompt tokens from the engine's cache. Unset: the value of `input`.
    cached: Amount | None = None
    output: Amount = 0.0  # The price of output tokens.


class Usage(Frozen, frozen=True):
    """How tokens are counted."""

    # Ask engines for the token counts of streams (`stream_options.include_usage`). If the client
    # did not ask for these counts, the router removes them from the response.
    inject: bool = True
    # The price of a million tokens, by model; "*": of every other model. GET /usage on the admin
    # port and the budgets of keys compute costs from it. Tokens without a price cost nothing.
    prices: dict[str, Price] = {}
    # The SQLite file that keeps the usage of each day, and so the used amounts of budgets, over
    # restarts. Routers on one machine may share the file. Unset: a restart forgets the usage.
    file: Annotated[str, Restart] | None = None
    # Time between two writes of the file. A killed process loses at most the usage of this time.
    flush_s: Seconds = 5.0
    # Number of days with requests that the file keeps. Budgets need at least two months.
    retention_days: Annotated[int, msgspec.Meta(ge=62, le=36_600)] = 400
