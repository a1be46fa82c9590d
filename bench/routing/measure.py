"""Measures decisions in CPU time. A figure is the median of the means of several blocks.

CPU time does not include other processes. A decision is the proxy's work between the hashing of the
prompt and the lease. It includes the search for replicas that hold a prefix (match), the call of
the policy (pick), and the record that the chosen replica holds the prompt (insert). Hashing is
measured separately.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from random import Random
from statistics import median
from time import thread_time
from typing import Final

import msgspec

from bench.routing.traffic import PROMPT_BYTES, Fleet, Traffic
from router.config.model import Prefix
from router.fleet.prefix.index import PrefixIndex
from router.intake.fields import Fields
from router.intake.prompt import prompt_blocks

BLOCK: Final = 250  # decisions per block
# Numbers of entries just after Python enlarges a dict, just before, and in between. The memory per
# entry depends on it, because the dict's slots per entry differ by a factor of 2.
FILLS: Final = (19_200, 21_900, 24_300, 33_300, 43_700, 250_000)


def _clock_us() -> float:
    """Return the µs of reading the clock before and after a call."""
    samples = []
    for _ in range(1000):
        began = thread_time()
        samples.append(thread_time() - began)
    return median(samples) * 1e6


def decision_us(fleet: Fleet, policy: str, kind: str, blocks: int) -> float:
    """Return the µs of one decision. Raises RuntimeError if the policy failed in any decision."""
    traffic = Traffic(fleet, policy, kind)
    choose, dispatched = traffic.chooser.choose, traffic.chooser.dispatched
    replicas = fleet.replicas
    clock = _clock_us()
    means = []
    gc.collect()
    gc.freeze()
    # Warm up until the intended number of requests is running.
    warm = 8 * len(replicas) // BLOCK + 2
    for block in range(warm + blocks):
        spent = 0.0
        for _ in range(BLOCK):
            view = traffic.next()
            began = thread_time()
            replica = choose(view, replicas, 0.0)
            placement = dispatched(view, replica, 0.0)
            spent += thread_time() - began
            traffic.placed(view, replica, placement)
        if block >= warm:
            means.append(spent / BLOCK * 1e6 - clock)
    traffic.end()
    gc.unfreeze()
    if traffic.metrics.policy_errors:
        raise RuntimeError(f"{policy} failed {traffic.metrics.policy_errors} times")
    return median(means)


def parts_us(fleet: Fleet, blocks: int) -> dict[str, float]:
    """Return the µs of the prefix index's calls for one new prompt, in a full index."""
    index = fleet.knowledge.prefixes
    replicas = fleet.replicas
    clock = _clock_us()
    spent: dict[str, list[float]] = {"match": [], "insert": [], "confirm": []}
    number = 0
    for _ in range(blocks):
        total = dict.fromkeys(spent, 0.0)
        for _ in range(BLOCK):
            number += 1
            replica = replicas[number % len(replicas)]
            prompt = fleet.system + fleet.fresh(fleet.length - len(fleet.system))
            at = thread_time()
            held = index.match(prompt)
            matched = thread_time()
            index.insert(replica, prompt, held.get(replica, 0))
            inserted = thread_time()
            index.confirm(replica, prompt, held.get(replica, 0))
            total["confirm"] += thread_time() - inserted
            total["insert"] += inserted - matched
            total["match"] += matched - at
        for name, seconds in total.items():
            spent[name].append(seconds / BLOCK * 1e6 - clock)
    return {name: median(values) for name, values in spent.items()}


def hashing_us(blocks: int) -> float:
    """Return the µs for hashing a prompt of 16 KB."""
    text = b'[{"role": "user", "content": "' + b"lorem ipsum dolor sit amet " * 1000
    raw = text[: PROMPT_BYTES - 2] + b'"}]'
    fields = Fields(model="m", messages=msgspec.Raw(raw))
    rules = Prefix()

    def hashed() -> object:
        return prompt_blocks("chat", fields, rules.block_bytes, rules.blocks)

    return _timed(hashed, blocks)


def _timed(call: Callable[[], object], blocks: int) -> float:
    means = []
    for _ in range(blocks + 1):
        began = thread_time()
        for _ in range(BLOCK):
            call()
        means.append((thread_time() - began) / BLOCK * 1e6)
    return median(means[1:])


def bytes_per_entry(replicas: int = 64) -> float:
    """Return the maximum bytes per index entry over `FILLS`, while entries are added and evicted.

    An entry is a pair (block, replica that holds the block). Each prompt has one holder.
    """
    worst = 0.0
    rng = Random(1)
    for fill in FILLS:
        gc.collect()
        tracemalloc.start()
        index: PrefixIndex[int] = PrefixIndex(fill)
        for key in range(replicas):
            index.add_replica(key)
        for number in range(2 * fill // 32):
            prompt = tuple([rng.getrandbits(64) for _ in range(32)])
            index.insert(number % replicas, prompt)
            index.confirm(number % replicas, prompt, 0)
            entries = index.stats.entries if number % 128 == 0 else 0
            if entries > 10_000:
                worst = max(worst, tracemalloc.get_traced_memory()[0] / entries)
        tracemalloc.stop()
    return worst
