"""Luck that follows a request, not the engine that happens to be asked.

A request with the header `x-emulate-key` meets faults that have a probability by its key and by how
many attempts came with that key before, to whichever engine of this process. Routers that get the
same requests then see the same first attempts go wrong, wherever they send them, and a copy draws
anew: without it, two runs of a bench differ mostly by luck.

Deterministic. Bounded: the key that was first seen longest ago is forgotten.
"""

from __future__ import annotations

from random import Random

_KEYS = 65_536


class Luck:
    """The draws of all engines of a process."""

    def __init__(self, most: int = _KEYS) -> None:
        self._attempts: dict[str, int] = {}
        self._most = most

    def draw(self, key: str) -> float:
        """At least 0 and less than 1, for the next attempt with this key."""
        attempts = self._attempts
        count = attempts[key] = attempts.get(key, 0) + 1
        if len(attempts) > self._most:
            del attempts[next(iter(attempts))]
        return Random(f"{key} {count}").random()


OF_PROCESS = Luck()
