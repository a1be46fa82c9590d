"""Emulates LLM engines: batching, preemption, paged KV with a prefix cache, real HTTP formats.

The modules in `core` use no socket and no clock, so a simulator can run them on a virtual clock.
`http` and `fleet` run them behind real sockets; `http/personas` has the differences between
engines. `spawn` starts a fleet in a separate process. The modules that serve requests in the proxy
must import nothing from this package except `spawn` and `command`, which are cheap to import.
"""
