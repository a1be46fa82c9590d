"""An LLM engine in miniature: batching, preemption, paged KV with a prefix cache, real wire shapes.

`core` and what it stands on (`request`, `timing`, `kv`, `kv_events`) are pure and also run on a
simulator's virtual clock; `server` and `fleet` put them behind real sockets, in the ways of the
engine that `personas` pretends to be; `spawn` starts a fleet in a process of its own. Nothing here
may be imported by the data plane except `spawn` and `command`, which are light.
"""
