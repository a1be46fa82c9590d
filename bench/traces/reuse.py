"""Computes the hit rate of one LRU cache with the capacity of the whole fleet, as a bound for
routing policies.

The cache has `capacity_blocks` and processes each request at its arrival. The hits of a prompt are
the blocks of its longest cached prefix. All blocks of the prompt are then marked as used, the first
block last, so that a block is evicted before the blocks of its prefix.

A fleet divides this capacity among its replicas and stores popular prefixes several times, so its
hit rate is lower. A fleet could only have a higher hit rate with a better eviction algorithm than
LRU. Answers use no capacity in this cache, although they do in an engine.

Must never: hold more blocks than the capacity plus those of one prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from router.lab.simulator.traffic import Arrival, Traffic
from router.lab.traces.trace import Reuse


def reuse_bound(traffic: Traffic, capacity_blocks: int) -> Reuse:
    """Return the hits of one LRU cache of `capacity_blocks`. Raises TraceError, ValueError."""
    size = traffic.block_tokens
    hits = asked = 0
    for arrival, found in hits_of(traffic, capacity_blocks):
        asked += -(-arrival.prompt_tokens // size)
        hits += found
    return Reuse(hits=hits, asked=asked)


def hits_of(traffic: Traffic, capacity_blocks: int) -> Iterator[tuple[Arrival, int]]:
    """Yield each arrival with the number of its blocks that one LRU cache of `capacity_blocks`
    holds.

    Raises TraceError, ValueError.
    """
    if capacity_blocks < 1:
        raise ValueError("capacity_blocks must be at least 1")
    # The least recently used block is first. A plain dict would be slow here: to find its first
    # entry, it scans all entries deleted at its front.
    cache: OrderedDict[int, None] = OrderedDict()
    for arrival in traffic:
        hits = 0
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
        yield arrival, hits
