"""Creates the names that identify requests at engines; clients cannot guess them.

An engine finds and aborts requests by their names. So a client must neither choose the name of its
request at the engine, nor be able to guess the name of another request. The client's own
`x-request-id` appears in the log and in the response, and is not sent to engines.
"""

from __future__ import annotations

import os
from typing import Final

LENGTH: Final = 24  # Length of a name in hexadecimal digits; 24 digits are 96 bits.
_AT_ONCE: Final = 256  # Number of names for which random bytes are read in one system call.


class Ids:
    """Creates the names of requests at engines."""

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
