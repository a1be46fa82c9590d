"""One replica's part of the prefix index: its bits in the masks, and the ring of its blocks.

A slot has two bits in a mask: `held`, and above it `used`. Masks of one holder are shared objects.

Must never: change a mask of the index (`index.py` does).
"""

from __future__ import annotations

from array import array
from typing import Any, Generic, TypeVar

K = TypeVar("K")

# An int whose object is shared by all blocks with the same holder. The type is Any, so that
# compiled code keeps the object and not only its value: a separate object would cost 32 bytes per
# block.
Mask = Any
# The hash of a block, an int of up to 64 bits. The type is Any so that compiled code keeps the
# object, and because compiled code is slow with an int of more than 62 bits.
Block = Any


class Slot(Generic[K]):
    """One replica's bits in the masks, and its ring."""

    __slots__ = (
        "both",
        "capacity",
        "count",
        "head",
        "held",
        "key",
        "last",
        "last_held",
        "number",
        "own",
        "ring",
    )

    def __init__(self, key: K, number: int, own: int) -> None:
        self.key: K | None = key  # None: the replica was removed, and its entries are being freed.
        self.number = number
        self.held: Mask = 1 << 2 * number
        self.both: Mask = 3 << 2 * number
        self.own = own  # Number of blocks that fit into the replica's KV cache.
        self.capacity = 0  # The lesser of `own` and the replica's share of all entries.
        # The ring: hashes in order of arrival; withdrawn hashes stay until the hand of the CLOCK
        # algorithm passes them.
        self.ring = array("Q")
        self.head = 0  # Index of the first entry of the ring.
        self.count = 0  # number of blocks that the replica holds
        # The blocks of the prompt in the last `insert`, and how many of them are held. `None`:
        # blocks were removed after that `insert`.
        self.last: tuple[Block, ...] | None = None
        self.last_held = 0

    @property
    def excess(self) -> int:
        return len(self.ring) - self.head - self.capacity
