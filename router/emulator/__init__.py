"""An LLM engine in miniature: batching, paged KV with a prefix cache, vLLM's wire shapes.

`core` and what it stands on (`timing`, `kv`) are pure and also run on a simulator's virtual clock;
`server` and `fleet` put them behind real sockets; `spawn` starts a fleet in a process of its own.
Nothing here may be imported by the data plane except `spawn` and `command`, which are light.
"""
