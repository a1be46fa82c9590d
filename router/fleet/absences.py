"""Records since when a known name (a model or one replica) has had no fit replica.

The fleet table computes which replicas are fit; this class keeps the time of each change. A request
that finds no fit replica compares this time with the limit of its class
(`classes.*.absent`).

Must never: keep a name that the fleet does not know, or read a clock.
"""

from __future__ import annotations

from collections.abc import Collection


class Absences:
    """The known names that have no fit replica, each with the time since which it has none."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, known: Collection[str], present: Collection[str], now: float) -> None:
        """Update the times.

        `known`: the names that the fleet knows. `present`: the known names that have a fit replica.
        """
        since = self._since
        for name in known:
            if name not in present:
                since.setdefault(name, now)
        if since:
            for name in [n for n in since if n in present or n not in known]:
                del since[name]

    def since(self, name: str) -> float | None:
        """Return since when the name has had no fit replica; `None` if it has one or is unknown."""
        return self._since.get(name)
