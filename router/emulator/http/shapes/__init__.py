"""The wire format of each route's answers: one route per file, bytes only, no sockets.

Copied from vLLM 0.32's real answers, field by field, so that a client or a router that works here
works there. `openai` has the same two routes in the format of the other engines.
"""
