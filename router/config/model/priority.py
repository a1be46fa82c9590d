"""Declares the section `priority`: which priority class a request gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from router.config.model.setting_types import Frozen
from router.fleet.engines.common.registry import DIALECTS

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
