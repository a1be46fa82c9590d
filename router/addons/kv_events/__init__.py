"""Finds the exact contents of the replicas' KV caches, from the events that the engines publish.

vLLM and SGLang report over ZMQ which blocks they store and remove. `decode` reads the messages,
`stream` restores their order, and `index` records which replicas hold a block, by its token IDs.
`reader` owns the sockets, and `watcher` reads the configured endpoints of the replicas and
subscribes to the publishers of a whole fleet.

A publisher whose endpoint has a wildcard host (`tcp://*:5557`) binds a socket, and the router
connects to it. With any other host (`tcp://router:5557`) the engine itself connects, and a router
that connects as well receives nothing. So configure engines with a wildcard host.

The keys of the index are token IDs. `tokens` gets those of a prompt from a local tokenizer or from
a replica, and `token_ids` asks for them before a replica is chosen.

This package is used only if `prefix.exact` is set. It needs the optional packages of the extra
`kv-events` (see `extra`). `addon` connects its parts with the router; the simulator uses the index
alone.
"""

from router.addons.kv_events.addon import KvEvents as make
from router.addons.kv_events.chains import TokenChains
from router.addons.kv_events.decode import AllBlocksCleared, BlockRemoved, BlockStored
from router.addons.kv_events.index import ExactIndex

__all__ = ["AllBlocksCleared", "BlockRemoved", "BlockStored", "ExactIndex", "TokenChains", "make"]
