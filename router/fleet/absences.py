"""Since when a known name has had no fit replica: a model, or one replica itself.

The fleet table rebuilds what is fit; here the difference is kept as a time. A request that finds no
fit replica compares that time with what its class may wait (`queue.classes.*.absent_s`).

Must never: keep a name that the fleet does not know, or look at a clock.
"""

from __future__ import annotations

from collections.abc import Collection


class Absences:
    """Names that are known and not present, each with the time since when."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, known: Collection[str], present: Collection[str], now: float) -> None:
        """The fleet was rebuilt: it knows these names, and has a fit replica for these."""
        since = self._since
        for name in known:
            if name not in present:
                since.setdefault(name, now)
        if since:
            for name in [n for n in since if n in present or n not in known]:
                del since[name]

    def since(self, name: str) -> float | None:
        """When the name was lost, or first known; None: it is present, or it is not known."""
        return self._since.get(name)
