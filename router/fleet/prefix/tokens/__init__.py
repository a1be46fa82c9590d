"""Turns a request into token IDs, which the exact index needs.

`local` uses a tokenizer in the router, `remote` calls a replica's /tokenize. `provider` chooses
between them, caches results and limits time and memory. If no result is ready in time, the
approximate index is used.
"""
