"""Records the time since which a model, or one replica, has been unavailable.

A model is unavailable while no replica that serves it is fit for requests. The fleet table computes
which replicas are fit; this class keeps the time of each change. A request that finds no fit
replica compares this time with the limit of its priority class (`classes.*.absent`).

Must never: keep a name that the fleet does not know, or read a clock.
"""

from __future__ import annotations

from collections.abc import Collection


class Absences:
    """The names of unavailable models or replicas, each with the time at which it became
    unavailable."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, known: Collection[str], present: Collection[str], now: float) -> None:
        """Update the times of all names.

        `known`: the names that the fleet knows. `present`: the known names of which a replica is
        fit for requests.
        """
        since = self._since
        for name in known:
            if name not in present:
                since.setdefault(name, now)
        if since:
            for name in [n for n in since if n in present or n not in known]:
                del since[name]

    def since(self, name: str) -> float | None:
        """Return the time since which no replica of this name has been fit for requests.

        `None`: a replica of this name is fit, or the name is unknown.
        """
        return self._since.get(name)
