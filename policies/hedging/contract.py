"""The contract between a hedging policy and its caller, the proxy or the simulator.

A hedging policy decides after which delay a second copy of a request may be sent. When the delay
has passed, it decides whether the copy is still expected to save time. The caller decides the rest,
in the same way for every policy: which requests may be hedged, the budget, the utilisation above
which no copy is sent, which replicas may take a copy, and when a replica shows no work (`watches`).

The caller asks a policy for a delay about once a second for each model, not for each request. A
policy is synchronous and deterministic and keeps no state. A policy must never use a socket, a
clock or another module of the router. If a policy raises or returns an invalid value, no request is
hedged and the error is counted.

Third parties register policies through the entry-point group `hedgerow.hedging`; the entry point's
name is the policy's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from policies.hedging.curve import Curve
from policies.registry import PolicyConfigError as PolicyConfigError, Registry


class Delay(NamedTuple):
    """The delay from the dispatch to the decision about a second copy. The decision is due when the
    longer of the two delays has passed.
    """

    ratio: float = 0.0  # a delay in multiples of the predicted time to first content
    seconds: float = 0.0


class HedgingPolicy:
    """The base class of every hedging policy: a `@dataclass(slots=True)` whose fields are its
    options."""

    __slots__ = ()

    idle: ClassVar[bool] = False  # True: the policy never sends a copy, so no times are measured.
    # True: a request whose replica shows no work gets a copy at an idle replica before the delay.
    watches: ClassVar[bool] = False
    # The classes whose requests the policy may hedge; None: the classes in the configuration.
    only: ClassVar[frozenset[str] | None] = None

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        """Return the delay before a copy is considered. `None`: no copy is sent.

        `curve`: the times to first content of the last 30 s, in multiples of the predicted time. If
        there are only a few measured times, assumed times are added. `quantile`: the share of
        hedgeable requests that must show content before the delay, so that copies of the rest stay
        within the budget.
        """
        raise NotImplementedError

    def pays(self, waited_s: float, predicted_s: float, backup_s: float, curve: Curve) -> bool:
        """Whether a copy that is predicted to take `backup_s` is worth sending now.

        The first attempt was predicted to take `predicted_s` and has taken `waited_s` so far. If
        the result is true for one `backup_s`, it must be true for every smaller `backup_s`, because
        the caller does not call this method for every replica.
        """
        return True

    def most_utilised(self) -> float:
        """Return the utilisation of the pool, 0 to 1, from which on the policy sends no copies."""
        return 1.0


HEDGING: Registry[HedgingPolicy] = Registry("hedging", "policies.hedging", "hedgerow.hedging")
P = TypeVar("P", bound=type[HedgingPolicy])


def policy(name: str) -> Callable[[P], P]:
    """Register a hedging policy under `name`. The decorator goes above `@dataclass(slots=True)`."""
    return HEDGING.register(name)


def policy_names() -> list[str]:
    """The names that `make_policy` accepts, sorted. Third-party policies are not imported."""
    return HEDGING.names()


def make_policy(name: str, options: Mapping[str, Any] | None = None) -> HedgingPolicy:
    """Build a policy from its name and its options, a mapping as in the configuration file.

    Raises PolicyConfigError for an unknown name, an unknown option or a bad value.
    """
    return HEDGING.make(name, options)


def check_number(name: str, value: float, least: float = 0.0) -> None:
    """Raise PolicyConfigError if an option is below `least`, infinite or NaN."""
    if not least <= value < float("inf"):
        raise PolicyConfigError(f"{name} must be a number, {least:g} or more", name)
