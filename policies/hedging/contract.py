"""The contract between a hedging policy and whoever drives it, the proxy or a simulator.

A hedging policy says after which wait a second copy of a request may go, and when that time has
come, whether it is still expected to pay. Everything else is the caller's and holds for every
policy: whose requests may be hedged, the budget, the utilisation above which nothing is, which
replicas may take a copy.

A policy is asked for a delay about once a second for each model, not for each request. It is
synchronous and deterministic, keeps nothing, and must never touch a socket, a clock or another
module of the router. If it raises or answers nonsense, nothing is hedged and the error is counted.

Third parties register theirs through the entry-point group `hedgerow.hedging`; the entry point's
name is the policy's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from policies.hedging.curve import Curve
from policies.registry import PolicyConfigError as PolicyConfigError
from policies.registry import Registry


class Delay(NamedTuple):
    """From the dispatch to the question for a second copy: both must have passed."""

    ratio: float = 0.0  # times the predicted time to the first content
    seconds: float = 0.0


class HedgingPolicy:
    """Base of every hedging policy: a `@dataclass(slots=True)` whose fields are its options."""

    __slots__ = ()

    idle: ClassVar[bool] = False  # it never sends anything, so nothing is measured for it
    only: ClassVar[frozenset[str] | None] = None  # classes it is for; None: as configured

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        """When to ask. None: not at all.

        `curve`: first contents of the last 30 s, in multiples of what was predicted. Where there
        are only a few, an assumption stands for those that are missing. `quantile`: the share of
        hedgeable requests that must show content before the delay, if copies for the rest are to
        stay inside the budget.
        """
        raise NotImplementedError

    def pays(self, waited_s: float, predicted_s: float, backup_s: float, curve: Curve) -> bool:
        """Whether a copy that is predicted to take `backup_s` is worth it now: the first attempt
        is predicted to take `predicted_s` and has taken `waited_s` so far.

        A copy that takes less than one that pays must pay, too: not all of them are asked for.
        """
        return True

    def most_utilised(self) -> float:
        """The utilisation of the pool from which on it sends nothing; 0 to 1."""
        return 1.0


HEDGING: Registry[HedgingPolicy] = Registry("hedging", "policies.hedging", "hedgerow.hedging")
P = TypeVar("P", bound=type[HedgingPolicy])


def policy(name: str) -> Callable[[P], P]:
    """Register a hedging policy class under `name`; stands above `@dataclass(slots=True)`."""
    return HEDGING.register(name)


def policy_names() -> list[str]:
    """Names to ask `make_policy` for, sorted. Third parties' are listed without being imported."""
    return HEDGING.names()


def make_policy(name: str, options: Mapping[str, Any] | None = None) -> HedgingPolicy:
    """Build a policy from its name and options (a mapping as it stands in the configuration).

    Raises PolicyConfigError for an unknown name, an unknown option or a bad value.
    """
    return HEDGING.make(name, options)


def check_number(name: str, value: float, least: float = 0.0) -> None:
    """Refuse an option that is no number from `least` on. Raises PolicyConfigError."""
    if not least <= value < float("inf"):
        raise PolicyConfigError(f"{name} is a number, {least:g} or more", name)
