"""The replicas that may get one request, or the error for the client if there is none.

Must never: choose among the replicas; a routing policy does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from policies.allowed import Allowed
from router.core.errors import Reason, RouterError
from router.fleet.prefix.response_affinity import ResponseAffinity
from router.fleet.regions.residents import not_allowed
from router.fleet.replica import Replica
from router.fleet.table.models import FleetModels
from router.fleet.table.serving import Serving

# Retry-After in seconds while no replica is fit: a replica that was just lost is often back within
# seconds.
RETRY_AFTER_S: Final = 2


class Eligibility:
    """Answers for one request at a time, from the current lists of one fleet."""

    __slots__ = ("_clock", "_models", "_replicas", "_response_affinity", "_serving")

    def __init__(
        self,
        replicas: dict[str, Replica],
        models: FleetModels,
        serving: Serving,
        response_affinity: ResponseAffinity,
        clock: Callable[[], float],
    ) -> None:
        """`replicas`: the fleet's own dict, which changes over time. `response_affinity`: the
        replicas that hold stored responses. `clock`: monotonic seconds."""
        self._clock = clock
        self._replicas = replicas
        self._models = models
        self._serving = serving
        self._response_affinity = response_affinity

    # -- any replica of a model ---------------------------------------------------------------

    def replicas(
        self,
        model: str | None,
        allowed: Allowed | None,
        tried: Collection[object] = (),
        *,
        anyone: bool = False,
    ) -> Sequence[Replica]:
        """Return the fit replicas for a model that are not in `tried`.

        `model`: `None` if the request names no model. `allowed`: the regions to which the request
        may be sent; `None`: all regions. `anyone`: the request needs no model, so any fit replica
        can take it. Raises RouterError if no replica can take the request.
        """
        serving = self._serving
        if model is None and not serving.is_one_pool and not anyone:
            raise _unnamed()
        found: Sequence[Replica] = serving.of(model, allowed)
        if tried:
            found = [r for r in found if r not in tried]
            if not found:
                found = [r for r in serving.passed_over(model, allowed) if r not in tried]
        if not found:
            raise self._none_for(model, allowed)
        if serving.has_limits:
            found = [r for r in found if r.inflight < r.limit]
            if not found:
                raise RouterError(
                    Reason.FLEET_FULL, "every replica is at its limit", retry_after_s=1
                )
        return found

    def check(self, model: str | None, allowed: Allowed | None) -> None:
        """Raise RouterError if waiting would not help: replicas are ready, but none lists the
        model; no replica of the allowed regions serves it; or the request must name a model."""
        if model is None:
            if not self._serving.is_one_pool:
                raise _unnamed()
        elif self._is_unknown(model):
            raise self._none_for(model, None)
        if self._is_elsewhere(model, allowed):
            raise self._none_for(model, allowed)

    def refusal(self, model: str | None, allowed: Allowed | None) -> RouterError | None:
        """Return the error for requests that wait for a model that no allowed region has.

        The result is `None` if the requests must continue to wait.

        The result is `None` while the first probe of a replica is pending, because that replica may
        list the model.
        """
        if self._models.awaits_probe:
            return None
        if model is not None and self._is_unknown(model):
            return self._none_for(model, None)
        if self._is_elsewhere(model, allowed):
            return self._none_for(model, allowed)
        return None

    def _is_elsewhere(self, model: str | None, allowed: Allowed | None) -> bool:
        """Whether the fleet has replicas, and none of the allowed regions serves the model."""
        if allowed is None or not self._replicas:
            return False
        return not self._serving.resident(model, allowed).is_served

    def _is_unknown(self, model: str) -> bool:
        serving = self._serving
        return (
            bool(serving.ready)
            and model not in self._models.known
            and not serving.everywhere(model)
        )

    def _none_for(self, model: str | None, allowed: Allowed | None) -> RouterError:
        ready = self._serving.ready
        if not self._replicas:
            return _away("the fleet has no replicas at the moment")
        if allowed is not None:
            residents = self._serving.resident(model, allowed)
            if not residents.is_served:
                return not_allowed(model, allowed)
            if residents.is_short and not residents.preferred:
                return _away("no replica is up whose context is long enough for this request")
            if ready and not residents.preferred and allowed.regions is not None:
                return _away(f"no replica is up in the regions that this key may use ({allowed})")
        if not ready:
            return _away("no replica is up")
        if model is not None and model not in self._models.known:
            if self._clock() < self._models.unread_until:
                words = f"no replica lists the model `{model}`, and some replicas are not up yet"
                return _away(words, Reason.MODEL_RESTARTING)
            return RouterError(
                Reason.MODEL_NOT_FOUND, f"the model `{model}` does not exist", param="model"
            )
        return _away("no replica serves this model at the moment", Reason.MODEL_RESTARTING)

    # -- one replica --------------------------------------------------------------------------

    def owner_of(self, response: str, party: str, allowed: Allowed | None) -> Replica | None:
        """Return the fit replica that holds a stored response; `None` if no holder is known.

        Raises RouterError if the replica is known but not available, if it is not in an allowed
        region, or if the response belongs to another client (`party`).
        """
        replica_id = self._response_affinity.find(response, party)
        if replica_id is None:
            return None
        ready = self._serving.ready_ids.get(replica_id)
        if ready is not None:
            if allowed is not None and not allowed.allows(ready.region):
                raise not_allowed(None, allowed)
            return ready
        if replica_id in self._replicas:
            raise _away("the replica that holds this response is not up")
        raise RouterError(Reason.STATE_LOST, "the replica that held this response is gone")

    def pinned(self, replica_id: str, allowed: Allowed | None) -> Replica | None:
        """Return the replica with an ID if it is fit and in an allowed region, else `None`."""
        found = self._serving.ready_ids.get(replica_id)
        return found if found is None or _is_allowed(found, allowed) else None

    def refusal_of_pinned(self, replica_id: str, allowed: Allowed | None) -> RouterError | None:
        """Return the error for requests that wait for one replica that is in no allowed region.

        The result is `None` if the requests must continue to wait.
        """
        found = self._replicas.get(replica_id)
        if allowed is None or found is None or _is_allowed(found, allowed):
            return None
        return not_allowed(None, allowed)


def _away(words: str, reason: Reason = Reason.NO_REPLICA) -> RouterError:
    return RouterError(reason, words, retry_after_s=RETRY_AFTER_S)


def _unnamed() -> RouterError:
    return RouterError(
        Reason.MODEL_REQUIRED,
        "the fleet serves several models: name one in `model`",
        param="model",
    )


def _is_allowed(replica: Replica, allowed: Allowed | None) -> bool:
    return allowed is None or allowed.allows(replica.region)
