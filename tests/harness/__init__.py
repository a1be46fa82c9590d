"""What the tests talk with: a raw client, a hostile replica, and a router between them.

- `messages`: bytes of requests, responses, chunks and events.
- `reading`: an independent, strict reading of those bytes (h11).
- `peer`, `client`, `replica`: real sockets with the verbs of a scripted conversation.
- `behaviours`: what a replica does with a connection, as small functions.
- `running`: an app with its replicas, and the proof that nothing is left behind.
"""
