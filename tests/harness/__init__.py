"""The test tools: a raw client, a hostile replica, and a router between them.

- `messages`: bytes of requests, responses, chunks and events.
- `reading`: independent, strict parsing of those bytes (h11).
- `peer`, `client`, `replica`: real sockets with methods for a scripted conversation.
- `behaviours`: actions of a replica on a connection, as small functions.
- `running`: an app with its replicas, its reloads, and the check that it releases everything.
- `virtual_time`: an event loop whose clock jumps to the next timer.
- `splits`: the ways to cut bytes into reads.
"""
