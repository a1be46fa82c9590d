"""The part of the prefix index that belongs to one replica (a slot).

The index maps each block to a mask: an int with two bits for each replica. The bit `held` means
that the replica holds the block. The bit above it, `used`, means that the block was used recently.
The slot stores the replica's two bits, and a ring buffer of the replica's blocks. All blocks that
only this replica holds share one mask object.

Must never: change a mask of the index (only `index.py` may).
"""

from __future__ import annotations

from array import array
from typing import Any, Generic, TypeVar

K = TypeVar("K")

# An int: the bits of the replicas that hold a block. Blocks with the same single holder share one
# object. The type is Any, so that compiled code keeps the object and not only its value: a separate
# object would cost 32 bytes per block.
Mask = Any
# The hash of a block, an int of up to 64 bits. The type is Any so that compiled code keeps the
# object, and because compiled code is slow with an int of more than 62 bits.
Block = Any


class Slot(Generic[K]):
    """One replica's bits in the masks, and the ring buffer of its blocks."""

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
        # Maximum number of blocks in the index: the lesser of `own` and the replica's share of all
        # entries.
        self.capacity = 0
        # Ring buffer of block hashes in order of arrival. Withdrawn hashes stay until the hand of
        # the CLOCK algorithm (the eviction pointer) passes them.
        self.ring = array("Q")
        self.head = 0  # Index of the oldest entry in `ring`.
        self.count = 0  # number of blocks that the replica holds
        # The blocks of the prompt in the last `insert`, and how many of them the replica held.
        # `None`: blocks of the replica were removed after that `insert`.
        self.last: tuple[Block, ...] | None = None
        self.last_held = 0

    @property
    def excess(self) -> int:
        return len(self.ring) - self.head - self.capacity
