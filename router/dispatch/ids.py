"""Names of requests that nobody can guess, for engines.

An engine stops, finds or mixes up requests by their names, so a client may neither choose the name
under which an engine knows its request nor guess another's. Its own `x-request-id` goes into the
log and back to it, and no further.
"""

from __future__ import annotations

import os
from typing import Final

LENGTH: Final = 24  # hexadecimal digits: 96 bits
_AT_ONCE: Final = 256  # drawn from the system together


class Ids:
    """Draws them."""

    __slots__ = ("_at", "_pool")

    def __init__(self) -> None:
        self._pool = b""
        self._at = 0

    def new(self) -> bytes:
        at = self._at
        if at >= len(self._pool):
            self._pool = os.urandom(LENGTH // 2 * _AT_ONCE).hex().encode("ascii")
            at = 0
        self._at = at + LENGTH
        return self._pool[at : at + LENGTH]
