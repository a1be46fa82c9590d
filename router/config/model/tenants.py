"""Declares the keys of clients, their priorities, and what their tokens cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from router.config.model.setting_types import Amount, Frozen, Restart, Seconds
from router.fleet.engines.common.registry import DIALECTS


class Keys(Frozen, frozen=True):
    """API keys. A key is sent in `Authorization: Bearer`, `x-api-key`, `api-key` or
    `x-goog-api-key`."""

    # The file with the hashes of the API keys. `hedgerow key` prints a line for it. The file is
    # read again at every reload.
    file: str | None = None
    # A folder whose files have lines of the same form, such as a mounted Kubernetes secret with one
    # file for each key. Its keys are used in addition to those of `file`.
    folder: str | None = None
    required: bool = False  # A request without a known key returns 401.
    forward: bool = False  # Forward the client's key to the replica.
    # The header that names the user of a key. Without the header, the body's `user` names the user.
    user_header: str = "x-user-id"
    names_users: bool = False  # Requests without a known key may also name users.


# The priority classes, the most urgent class first.
ClassName = Literal["critical", "high", "normal", "low", "batch"]
if TYPE_CHECKING:
    Dialect = str
else:  # the names of dialects come from the files in router/fleet/engines
    # The meaning of a number in a body's `priority`. engine: the meaning that the model's engines
    # give it.
    Dialect = Literal[("engine", "hedgerow", *DIALECTS)]


class PriorityRule(Frozen, frozen=True):
    """A rule that gives requests a priority class. Every condition that is set must match."""

    priority: ClassName  # The priority class of the requests that match.
    header: str = ""  # The name of a header field that must be present. "": no condition.
    # The value that the header field must have. "": any value. `nightly-*`: any value that begins
    # with `nightly-`.
    value: str = ""
    # The model's name. "": any model. `name-*`: any model whose name begins with `name-`.
    model: str = ""
    # The network of the client's address, such as 10.0.0.0/8. "": any network. Behind proxies of
    # `trusted_proxies`, it is the address that they forward. A longer IPv6 prefix than /64 matches
    # its whole /64, because a client may use all of it.
    network: str = ""


def _tiers() -> dict[str, ClassName]:
    return {"enterprise": "high", "pro": "normal", "free": "low"}


class Priority(Frozen, frozen=True):
    """Which priority class a request gets."""

    default: ClassName = "normal"  # The priority class of a request if nothing else sets it.
    # The most urgent class that a request can get. The API key or its tier can set another ceiling.
    ceiling: ClassName = "high"
    # The meaning of a number in a body's `priority`. engine: as the model's engines read it.
    # hedgerow: from 0 (critical) to 4 (batch). Otherwise: as the named engine reads it.
    dialect: Dialect = "engine"
    dialects: dict[str, Dialect] = {}  # Other values of `dialect` for single models, by model name.
    rules: tuple[PriorityRule, ...] = ()  # The first rule that matches a request applies.
    # The priority class of requests, by the tier of their API key.
    tiers: dict[str, ClassName] = msgspec.field(default_factory=_tiers)
    # The priority class for each value of the body's `service_tier`. Empty: the field is ignored.
    service_tier: dict[str, ClassName] = {}
    # A user's next request is less urgent while the user has other requests pending.
    steps: bool = True


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
