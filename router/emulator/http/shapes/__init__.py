"""What the answers of each route look like on the wire: one route a file, bytes only, no sockets.

Copied from what vLLM 0.32 really sends, field by field, so that a client or a router that works
here works there; `openai` has the same two routes as the other engines form them.
"""
