"""Random draws that depend on the request, not on the engine that receives it.

For a request with the header `x-emulate-key`, faults with a probability are drawn by its key and by
the number of earlier attempts with that key, at any engine of this process. With the same requests,
routers then see the same first attempts fail, wherever they send them, and a second copy of a
request gets a new draw. Without this, two runs of a bench would differ mostly by chance.

Deterministic. Bounded: the key that was first seen longest ago is dropped.
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
        """A number from 0 to below 1, for the next attempt with this key."""
        attempts = self._attempts
        count = attempts[key] = attempts.get(key, 0) + 1
        if len(attempts) > self._most:
            del attempts[next(iter(attempts))]
        return Random(f"{key} {count}").random()


OF_PROCESS = Luck()
