"""Reads answers of a server of Redis, and at most a bounded number of bytes and parts of each.

The parser of the package redis reads whatever length a server states, and parses a list of a
million parts without a pause.
"""

from __future__ import annotations

from typing import Any, Final

from redis._parsers import _AsyncRESP2Parser
from redis.exceptions import InvalidResponse

from router.share.messages import MOST_BYTES

# Larger messages are read and ignored up to this size. A larger one costs the connection.
MOST_READ: Final = 8 * MOST_BYTES
MOST_PARTS: Final = 64  # of one answer; a message has 4


class BoundedParser(_AsyncRESP2Parser):
    """The parser of RESP2, with limits. An answer beyond them raises InvalidResponse."""

    _left = MOST_PARTS

    async def read_response(self, disable_decoding: bool = False) -> Any:
        self._left = MOST_PARTS
        return await super().read_response(disable_decoding)

    async def _readline(self) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise InvalidResponse("too many parts")
        return await super()._readline()

    async def _read(self, length: int) -> bytes:
        if not 0 <= length <= MOST_READ:
            raise InvalidResponse("too long")
        return await super()._read(length)
