"""Records the time since which a region has had no fit replica for a model.

A request that is limited to some regions waits for these regions for at most `classes.*.absent`, as
other requests wait for the whole fleet. The times are recorded only for fleets of several regions.

Must never: read a clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from policies.allowed import Allowed
from router.fleet.absences import Absences
from router.fleet.model_pools import ModelPool


class RegionAbsences:
    """The pairs of a region and a model without a fit replica."""

    __slots__ = ("_absences",)

    def __init__(self) -> None:
        self._absences = Absences()

    def update(self, pools: Iterable[ModelPool], now: float) -> None:
        """Update the times after a change of the fleet. `pools`: the pools of all replicas."""
        known: dict[str, None] = {}
        present: set[str] = set()
        for pool in pools:
            fit = {replica.region for replica in pool.candidates}
            for region in {replica.region for replica in pool.members}:
                names = [_name(region, model) for model in ("", *pool.names)]
                known.update(dict.fromkeys(names))
                if region in fit:
                    present.update(names)
        self._absences.update(known, present, now)

    def since(self, model: str | None, allowed: Allowed) -> float | None:
        """Return the time since which no allowed region has had a fit replica for a model.

        `model`: `None` means any model. The result is `None` if the time is unknown.
        """
        return self._latest(model or "", allowed) or self._latest("", allowed)

    def _latest(self, model: str, allowed: Allowed) -> float | None:
        times = [self._absences.since(_name(region, model)) for region in allowed.regions or ()]
        return max([time for time in times if time is not None], default=None)


def _name(region: str, model: str) -> str:
    return f"{region}\n{model}"
