"""Declares the section `usage`: token counts, prices, and the file that keeps them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from router.config.model.setting_types import Amount, Frozen, Restart, Seconds

ANY: Final = "*"  # The name of the price of all models that have no price of their own.


class Price(Frozen, frozen=True):
    """The price of a million tokens of one model. All prices have the same currency.

    `classes.*.price_factor` multiplies the cost.
    """

    input: Amount  # The price of prompt tokens.
    # The price of prompt tokens from the engine's cache. Unset: the value of `input`.
    cached: Amount | None = None
    output: Amount = 0.0  # The price of output tokens.


class Charge(Frozen, frozen=True):
    """The tokens that a request costs if its answer has no token counts."""

    request: Amount = 0.0  # Tokens for each request.
    # Tokens for each second from sending the request to the end of its answer.
    second: Amount = 0.0
    kilobyte: Amount = 0.0  # Tokens for each 1000 bytes of the request's body.


class AudioCharge(Charge, frozen=True):
    """The cost of transcriptions, translations and speech (`/v1/audio/`)."""

    request: Amount = 10.0
    second: Amount = 50.0
    kilobyte: Amount = 0.5


class TokenizeCharge(Charge, frozen=True):
    """The cost of `/tokenize` and `/v1/messages/count_tokens`, which use no GPU."""

    request: Amount = 1.0
    kilobyte: Amount = 1.0


class OtherCharge(Charge, frozen=True):
    """The cost on other paths, such as `/v1/images/generations`."""

    request: Amount = 10.0
    second: Amount = 100.0


class Charges(Frozen, frozen=True):
    """What requests cost whose answers have no token counts.

    These tokens count in budgets and in tokens per minute, as prompt tokens. They have the price of
    the model. An answer with token counts costs these counts.
    """

    audio: AudioCharge = AudioCharge()
    tokenize: TokenizeCharge = TokenizeCharge()
    other: OtherCharge = OtherCharge()
    paths: dict[str, Charge] = {}  # The cost on single paths, instead of the above.


class Usage(Frozen, frozen=True):
    """How tokens are counted."""

    # Ask engines for the token counts of streams (`stream_options.include_usage`). If the client
    # did not ask for these counts, the router removes them from the response.
    inject: bool = True
    # The price of a million tokens, by model; "*": of every other model. GET /usage on the admin
    # port and the budgets of keys compute costs from it. Tokens without a price cost nothing. If a
    # key has a budget of money, each model that it may use needs a price.
    prices: dict[str, Price] = {}
    charges: Charges = Charges()
    # End the running requests of a key when its budget is used up, within a second or two. The
    # tokens of running streams count. By default, requests that have begun are served to their end.
    cut_spent: bool = False
    # The time zone in which days, weeks and months begin, for budgets and for the days of the file:
    # a name such as Europe/Berlin.
    time_zone: Annotated[str, Restart] = "UTC"
    # The SQLite file that keeps the usage of each day, and so the used amounts of budgets, over
    # restarts. Routers on one machine may share the file. Unset: a restart forgets the usage.
    file: Annotated[str, Restart] | None = None
    # Time between two writes of the file. A killed process loses at most the usage of this time.
    flush_s: Seconds = 5.0
    # Number of days with requests that the file keeps. Budgets need at least two months.
    retention_days: Annotated[int, msgspec.Meta(ge=62, le=36_600)] = 400
