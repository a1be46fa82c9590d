"""How much of the prompts a cache could have served: the bound that routing is measured against.

One cache with room for `capacity_blocks`, which is that of all replicas together, sees every
request in order of arrival, at once. What is found is the leading run of a prompt's blocks; all its
blocks are then used, the root last, so that tails go before the roots they hang on. A fleet splits
this memory and keeps popular prefixes several times, so it finds less; it could find more only by
an eviction better than LRU. Answers take no room here, though in an engine they do.

Must never: hold more blocks than the capacity and one prompt's.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from router.simulator.traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Blocks of prompts: found in a cache, and asked for."""

    hits: int
    asked: int  # all blocks of the prompts, begun ones included

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.hits / self.asked if self.asked else 0.0


def reuse_bound(traffic: Traffic, capacity_blocks: int) -> Reuse:
    """What one LRU cache of `capacity_blocks` finds. Raises TraceError, ValueError."""
    if capacity_blocks < 1:
        raise ValueError("a cache has room for at least one block")
    size = traffic.block_tokens
    # The least recently used first. Not a dict, which would step over all that left it at its
    # front to find the next one to go.
    cache: OrderedDict[int, None] = OrderedDict()
    hits = asked = 0
    for arrival in traffic:
        asked += -(-arrival.prompt_tokens // size)
        blocks = arrival.blocks
        for block in blocks:
            if block not in cache:
                break
            hits += 1
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity_blocks:
            cache.popitem(last=False)
    return Reuse(hits=hits, asked=asked)
