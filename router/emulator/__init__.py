"""Emulates LLM engines: batching, preemption, paged KV with a prefix cache, real HTTP formats.

`core` and its modules (`request`, `timing`, `kv`, `kv_events`) are pure and also run on a
simulator's virtual clock. `server` and `fleet` run them behind real sockets, with the behaviour of
the engine chosen in `personas`. `spawn` starts a fleet in a separate process. The data plane must
not import anything from here except `spawn` and `command`, which are light.
"""
