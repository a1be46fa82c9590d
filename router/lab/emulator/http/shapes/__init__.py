"""The wire format of each route's answers, one route per file. No file here uses sockets.

The fields are copied from real answers of vLLM 0.32, so that a client or a router that works with
the emulator works with vLLM, too. `openai` has the chat and completion routes in the formats of the
other engines.
"""
