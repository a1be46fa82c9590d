"""The size from which a read counts as large and ends its connection's turn.

libuv reads a socket up to 32 times in a row, 8 MB, before it serves another socket. So after a
large read the connection is paused until the next turn of the event loop. A small read costs only
a comparison.
"""

from __future__ import annotations

from typing import Final

LARGE_READ: Final = 128 * 1024  # bytes of one read
