"""Random draws that depend on the request, not on the engine that receives it.

A fault can have a probability. For a request with the header `x-emulate-key`, the draw depends on
that key and on the number of earlier attempts with it at all engines of this process. So the same
first attempts fail for every router that gets the same requests, whichever engine it chooses. A
second copy of a request gets a new draw. Without keys, the results of two benchmark runs would
differ mostly by chance.

The draws are deterministic. The number of stored keys is limited: the key that was first seen
longest ago is dropped.
"""

from __future__ import annotations

from random import Random

_KEYS = 65_536


class Luck:
    """The random draws of all engines of a process."""

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
