"""The number of prompt blocks of a waiting request that each replica holds, by the last lookup.

A `PrefixMatch` is created only when the request is among the first few of its class queue, because
a lookup costs microseconds.

Must never: do the lookup itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NOTHING: Final[dict[Any, int]] = {}


class PrefixMatch:
    """The result of the last prefix lookup of one request.

    Blocks are compared, not tokens: the tokens of a block are an estimate that is learned, so it
    differs a little between requests with the same prefix.
    """

    __slots__ = ("blocks", "looked_up_at", "most_blocks")

    def __init__(self) -> None:
        # By replica: the leading prompt blocks that it holds. A replica that is missing holds none.
        self.blocks: dict[Any, int] = _NOTHING
        self.most_blocks = 0  # prompt blocks at the replica that holds most of them
        self.looked_up_at = 0.0  # time of the last lookup, in monotonic seconds

    def update(self, blocks: Mapping[Any, int], now: float) -> None:
        """Store the result of a lookup."""
        self.looked_up_at = now
        self.blocks = blocks if isinstance(blocks, dict) else dict(blocks)
        most = 0
        for count in self.blocks.values():
            if count > most:
                most = count
        self.most_blocks = most

    def worth_at(self, place: object) -> int:
        """Return the prompt blocks that `place` holds, less those that only the best replica
        holds."""
        return 2 * self.blocks.get(place, 0) - self.most_blocks
