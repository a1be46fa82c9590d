"""Resolves the model name that a client writes to the model that is requested from replicas.

The configuration (`models`) gives a name one or more targets. A target is a model, optionally only
at the replicas of one pool. With several targets, each request gets one of them, in proportion to
their weights. The choice is a weighted rendezvous hash of the session (Thaler and Ravishankar,
"Using name-based mappings to increase hit rates", IEEE/ACM ToN 1998; weights: Schindelhauer and
Schomaker, "Weighted distributed hash tables", SPAA 2005). So the requests of a session get the same
target, at every router and after a restart. A change of one weight moves sessions only to or from
that target.

Requests for a target with a pool are queued and routed under the name `model@pool`. The fleet's
table lists the replicas of the pool under that name. The name is never sent to a replica, and not
listed to clients.

An alias of a configured name has the targets and fallbacks of that name, so its requests are split
in the same way. Otherwise a target is not resolved again, so no cycle is possible.

The proxy and the simulator both use `Names`.

Must never: look at a replica, or depend on the time.
"""

from __future__ import annotations

from math import log
from typing import Final

from xxhash import xxh3_64_intdigest

from router.config.model import Config, ModelRoute as Settings, ModelTarget, SplitTarget

_POOL: Final = "@"
_64_BITS: Final = 2.0**64

BY_SESSION: Final = "session"
BY_FLOW: Final = "flow"


class Target:
    """A model to which requests for a name are sent. The object never changes."""

    __slots__ = ("model", "pool", "routed")

    def __init__(self, model: str, pool: str) -> None:
        self.model = model  # The name in the request that a replica gets.
        self.pool = pool  # Only replicas of this pool serve the target; "": all replicas.
        # The name by which the request is queued and routed.
        self.routed = model + _POOL + pool if pool else model


class NamedModel:
    """A name that clients write, and its targets. The object never changes."""

    __slots__ = (
        "_weights",
        "fallbacks",
        "falls_back_on",
        "is_alias",
        "name",
        "restores_name",
        "sticky",
        "targets",
    )

    def __init__(self, name: str, settings: Settings, behind: Settings | None = None) -> None:
        """`behind`: the settings of the name that is the only target of this one, if it has any."""
        # An alias of a configured name gets the targets of that name. An alias of an alias does
        # not, so `a: b` and `b: a` exchange two models.
        owner, split = name, settings
        model = _alias_of(name, settings)
        if behind is not None and not _alias_of(model, behind):
            owner, split = model, behind
        targets = split.targets or (SplitTarget(),)
        self.name = name
        self.targets = [_target(owner, each) for each in targets]
        self._weights = [each.weight for each in targets]
        self.sticky: str = split.sticky
        if settings.fallbacks:
            owner, split = name, settings
        # The targets to which a request goes in this order if it cannot be served, and the
        # conditions (`dispatch/driver/fallbacks.py`).
        self.fallbacks = [_target(owner, each) for each in split.fallbacks]
        self.falls_back_on: frozenset[str] = frozenset(split.fall_back_on)
        # Whether responses get the client's name back.
        self.restores_name = settings.restore_name
        # Whether the name stands for other models, so that replicas need not list it.
        self.is_alias = all(each.model != name for each in self.targets)

    def target(self, session: str | None, flow: str, request: str) -> Target:
        """Return the target of a request.

        `session`: the key of its conversation; `None`: unknown. `flow`: its flow (`Flow.party`).
        `request`: a text that differs for each request. A request without the part to which its
        name is sticky gets a target of its own.
        """
        targets = self.targets
        if len(targets) == 1:
            return targets[0]
        key = ""
        if self.sticky == BY_SESSION:
            key = session or ""
        elif self.sticky == BY_FLOW:
            key = flow
        data = (key or request).encode("utf-8", "replace")
        best, most = targets[0], -1.0
        for target, weight in zip(targets, self._weights, strict=True):
            drawn: int = xxh3_64_intdigest(target.routed.encode() + b"\0" + data)
            score = weight / -log((drawn + 0.5) / _64_BITS)
            if score > most:
                best, most = target, score
        return best


class Names:
    """The names of one configuration. A reload replaces the whole object."""

    __slots__ = ("_by_name", "aliases", "is_used", "pooled", "routed")

    def __init__(self, config: Config) -> None:
        models = config.models
        self._by_name = {
            name: NamedModel(name, each, models.get(_alias_of(name, each)))
            for name, each in models.items()
        }
        self.is_used = len(self._by_name) > 0
        self.aliases = [named for named in self._by_name.values() if named.is_alias]
        every = [
            target
            for named in self._by_name.values()
            for target in (*named.targets, *named.fallbacks)
        ]
        # The names by which requests for targets are queued and routed.
        self.routed = frozenset([target.routed for target in every])
        # The targets with a pool, by their names `model@pool`.
        self.pooled = {target.routed: target for target in every if target.pool}

    def find(self, name: str | None) -> NamedModel | None:
        """Return the configured model with this name; `None` if the name means itself."""
        return None if name is None else self._by_name.get(name)


def _alias_of(name: str, route: Settings) -> str:
    """Return the only model that a name stands for; "" if it has a pool or several targets."""
    if len(route.targets) != 1 or route.targets[0].pool or route.targets[0].model == name:
        return ""
    return route.targets[0].model


def _target(name: str, target: ModelTarget) -> Target:
    return Target(target.model or name, target.pool)


NO_NAMES: Final = Names(Config())  # Every name means itself.
