"""How much is read from one connection in a turn of the event loop.

libuv reads a socket 32 times on end, 8 MB, before anything else has its turn. So a large read is
the last one of its turn: the connection is paused until the next. Small reads pay a comparison.
"""

from __future__ import annotations

from typing import Final

LARGE_READ: Final = 128 * 1024  # bytes
