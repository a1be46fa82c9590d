"""Delivers the KV cache events of one simulated engine to the routers, if `prefix.exact` is on.

The events fill each router's exact index (`addons/kv_events/index.py`), as in the proxy. A
router gets the events of a step one network delay after the step. Two things are simpler than in
the proxy: no event is lost, and the token IDs of a prompt are known when its request arrives.

Simulated prompts have block hashes instead of token IDs. So each block gets token IDs that are
derived from its hash. Equal blocks have equal token IDs.

Must never: give a router more than its engine publishes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from router.core.addons import load
from router.fleet.replica import Replica
from router.lab.emulator.core.kv_events import Cleared, KvEvent, Stored
from router.lab.simulator.clock import Clock

_ID_BYTES: Final = 4  # bytes of one token ID
_RANK: Final = 0  # simulated engines have no data-parallel ranks
_MASK: Final = (1 << 64) - 1


class KvFeed:
    """The events of one engine, for any number of subscribers."""

    def __init__(self, clock: Clock, network_s: float) -> None:
        self._clock = clock
        self._network_s = network_s
        self._kv_events: Any = load("kv_events", "prefix.exact")  # The addon.
        self._subscribers: list[tuple[Any, Replica]] = []

    def subscribe(self, index: Any, replica: Replica) -> None:
        """Give an index all events of the engine, from its start on."""
        index.add(replica)
        index.clear(replica, complete=True)
        self._subscribers.append((index, replica))

    def publish(self, log: list[KvEvent]) -> None:
        """Deliver the events in `log`, and empty it."""
        events = [self._event(one) for one in log]
        log.clear()
        clock = self._clock
        clock.at(clock.now + self._network_s, partial(self._deliver, events))

    def _deliver(self, events: Sequence[object], now: float) -> None:
        for index, replica in self._subscribers:
            for event in events:
                index.apply(replica, _RANK, event)

    def _event(self, event: KvEvent) -> object:
        if isinstance(event, Stored):
            return self._kv_events.BlockStored(
                [value & _MASK for value in event.hashes],
                None if event.parent is None else event.parent & _MASK,
                _token_ids(event.hashes, event.block_size),
                event.block_size,
            )
        if isinstance(event, Cleared):
            return self._kv_events.AllBlocksCleared()
        return self._kv_events.BlockRemoved([event.hash & _MASK])


def token_ids(blocks: Sequence[int], block_tokens: int, prompt_tokens: int) -> bytes:
    """Return the packed token IDs of a prompt. `blocks`: the hashes of its full blocks."""
    known = _token_ids(blocks, block_tokens)
    return known.ljust(prompt_tokens * _ID_BYTES, b"\0")


def _token_ids(blocks: Iterable[int], block_tokens: int) -> bytes:
    """Return `block_tokens` packed token IDs for each block."""
    size = block_tokens * _ID_BYTES
    return b"".join([(value & _MASK).to_bytes(8, "little").ljust(size, b"\0") for value in blocks])
