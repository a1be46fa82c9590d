"""Exact knowledge of what replicas hold in their KV caches, from the events they publish.

vLLM and SGLang tell over ZMQ which blocks they store and remove. `decode` reads the messages,
`stream` keeps their order whole, `index` remembers who holds what by token ids, `reader` owns the
sockets, `sources` says where a replica publishes and `watcher` does all of it for a fleet.

Who binds: a publisher whose endpoint has a wildcard host (`tcp://*:5557`) binds, and the router
connects to it. With any other host (`tcp://router:5557`) the engine itself connects, and a
subscriber that connects hears nothing: give engines a wildcard.

Opt-in: `prefix.exact`, with the packages of the extra `kv-events` (see `extra`).
"""
