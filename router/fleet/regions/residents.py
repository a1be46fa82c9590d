"""The replicas for requests that are limited to some regions (data residency) or context lengths.

The filter comes before the preference for replicas that are neither suspect nor busy. If all
replicas of the allowed regions are busy, they are used, although replicas of other regions are not
busy. The same applies to ejected replicas: an ejection leaves another replica to the model, but
perhaps none in the allowed regions.

If no replica of the allowed regions serves the model, waiting does not help, so the request returns
403 `region_not_allowed` at once. The status is 403, as for a model that a key may not use, because
the operator's limit forbids the replicas that exist. SDKs repeat a request after 503, but not after
403. If such a replica exists and is not up, the request waits as if no replica of the fleet were
up, and then returns 503.

A request that is too long for the context of a replica is not sent there, because the engine would
refuse it. If the replicas with a long enough context are not up, the request waits for them. If no
replica of the allowed regions has one, the context does not count: an engine answers the client.

Must never: return a replica of another region.
"""

from __future__ import annotations

from collections.abc import Sequence

from policies.allowed import Allowed
from router.core.errors import Reason, RouterError
from router.fleet.replica import Replica


class Residents:
    """The replicas of some regions for one model. The object is replaced when the fleet changes."""

    __slots__ = ("is_served", "is_short", "others", "own", "preferred")

    def __init__(
        self,
        fit: Sequence[Replica],
        known: Sequence[Replica],
        allowed: Allowed,
        model: str | None,
        now: float,
    ) -> None:
        """`fit`: the fit replicas for the model in all regions.

        `known`: all replicas that serve the model or may serve it, including replicas that are not
        fit. `model`: the name of the model in the lists of replicas.
        """
        own = [replica for replica in known if allowed.allows(replica.region)]
        found = [replica for replica in fit if allowed.allows(replica.region)]
        # Whether a replica of these regions serves the model, or may serve it.
        self.is_served = len(own) > 0 or allowed.regions is None
        # Whether replicas are up, but the context of each is too short for the request.
        self.is_short = False
        tokens = allowed.context
        if tokens:
            longer = [replica for replica in own if replica.listed.lengths.fits(model, tokens)]
            if longer:
                own = longer
                long = [replica for replica in found if replica.listed.lengths.fits(model, tokens)]
                self.is_short = len(found) > len(long)
                found = long
        if not found:  # The replicas that are up are ejected.
            found = [replica for replica in own if not replica.is_away]
        self.own: Sequence[Replica] = own  # The replicas to wait for, whether or not they are fit.
        self.preferred = tuple(preferred_of(found, now))
        # The fit replicas that are used only after all preferred ones have failed.
        self.others = without(found, self.preferred)


def not_allowed(model: str | None, allowed: Allowed) -> RouterError:
    """Return the error for a request that no replica of its allowed regions will ever serve."""
    what = "the request" if model is None else f"the model `{model}`"
    return RouterError(
        Reason.REGION_NOT_ALLOWED,
        f"no replica in the regions that this key may use ({allowed}) serves {what}",
    )


def preferred_of(fit: Sequence[Replica], now: float) -> Sequence[Replica]:
    """Return the fit replicas that are neither suspect nor busy.

    If there are none, return the busy replicas that are not suspect, else the suspect ones.
    """
    trusted = [r for r in fit if not r.health.is_suspect(now)] or fit
    return [r for r in trusted if not r.health.is_busy(now)] or trusted


def without(fit: Sequence[Replica], preferred: Sequence[Replica]) -> tuple[Replica, ...]:
    """Return the fit replicas that are not in `preferred`."""
    asked = set(preferred)
    return tuple([r for r in fit if r not in asked])
