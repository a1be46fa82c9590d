"""Defines the size in bytes from which a read from a socket counts as large.

libuv reads one socket up to 32 times in a row, 8 MB, before it serves another socket. So after a
large read, reading from that connection is paused until the next turn of the event loop. For a
small read only the size is compared.
"""

from __future__ import annotations

from typing import Final

LARGE_READ: Final = 128 * 1024  # minimum bytes of a large read
