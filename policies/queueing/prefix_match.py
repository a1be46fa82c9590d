"""How much of a waiting request's prompt each replica holds, as it was last looked up.

Made when the request is one of the first few of its class, because a lookup costs microseconds.

Must never: look anything up itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from policies.facts import RequestView

_NOTHING: Final[dict[Any, int]] = {}


class PrefixMatch:
    """Of one request. Tokens are estimated from blocks."""

    __slots__ = ("_view", "blocks", "looked_up_at", "most_tokens")

    def __init__(self, view: RequestView) -> None:
        self._view = view
        self.blocks: dict[Any, int] = _NOTHING  # leading blocks held, by replica; absent: none
        self.most_tokens = 0.0  # held by the replica that holds most
        self.looked_up_at = 0.0  # monotonic seconds

    def update(self, blocks: Mapping[Any, int], now: float) -> None:
        """A lookup found this."""
        self.looked_up_at = now
        self.blocks = blocks if isinstance(blocks, dict) else dict(blocks)
        most = 0
        for count in self.blocks.values():
            if count > most:
                most = count
        self.most_tokens = most * self._view.block_tokens

    def tokens_at(self, place: object) -> float:
        """Tokens of the prompt that a replica holds."""
        return self.blocks.get(place, 0) * self._view.block_tokens

    def worth_at(self, place: object) -> float:
        """Prompt tokens that are saved if the request goes there, less those lost elsewhere."""
        if self.most_tokens == 0.0:
            return 0.0
        return 2.0 * self.tokens_at(place) - self.most_tokens
