"""Turns a request into token ids, which the exact index needs.

`local` uses a tokenizer in the router, `remote` calls a replica's /tokenize, `provider` chooses
between them, caches results and bounds everything. If no result comes in time, the approximate
index is used.
"""
