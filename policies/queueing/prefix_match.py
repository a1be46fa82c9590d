"""The number of prompt blocks of a waiting request that each replica holds, by the last lookup.

A `PrefixMatch` is created only when the request is among the first few of its class queue, because
a lookup costs microseconds.

Must never: do the lookup itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from policies.facts import RequestView

_NOTHING: Final[dict[Any, int]] = {}


class PrefixMatch:
    """The result of the last prefix lookup of one request. Tokens are estimated from blocks."""

    __slots__ = ("_view", "blocks", "looked_up_at", "most_tokens")

    def __init__(self, view: RequestView) -> None:
        self._view = view
        # By replica: the leading prompt blocks that it holds. A replica that is missing holds none.
        self.blocks: dict[Any, int] = _NOTHING
        self.most_tokens = 0.0  # prompt tokens at the replica that holds most of them
        self.looked_up_at = 0.0  # time of the last lookup, in monotonic seconds

    def update(self, blocks: Mapping[Any, int], now: float) -> None:
        """Store the result of a lookup."""
        self.looked_up_at = now
        self.blocks = blocks if isinstance(blocks, dict) else dict(blocks)
        most = 0
        for count in self.blocks.values():
            if count > most:
                most = count
        self.most_tokens = most * self._view.block_tokens

    def tokens_at(self, place: object) -> float:
        """Return how many tokens of the prompt a replica holds."""
        return self.blocks.get(place, 0) * self._view.block_tokens

    def worth_at(self, place: object) -> float:
        """Return the prompt tokens that `place` holds, less those that only the best replica
        holds."""
        if self.most_tokens == 0.0:
            return 0.0
        return 2.0 * self.tokens_at(place) - self.most_tokens
