"""The exact contents of the replicas' KV caches, from the events that the engines publish.

vLLM and SGLang report over ZMQ which blocks they store and remove. `decode` reads the messages,
`stream` restores their order, `index` records the holders by token IDs, `reader` owns the sockets,
`sources` finds where a replica publishes, and `watcher` does all of this for a fleet.

Which side binds: a publisher whose endpoint has a wildcard host (`tcp://*:5557`) binds, and the
router connects to it. With any other host (`tcp://router:5557`) the engine itself connects, and a
router that connects as well receives nothing. So configure engines with a wildcard.

Opt-in: `prefix.exact`, with the packages of the extra `kv-events` (see `extra`).
"""
