"""Turns a request into token IDs, which the exact index needs.

`local` uses a tokenizer in the router, `remote` calls the /tokenize endpoint of a replica.
`provider` chooses between them, caches results and limits time and memory. If no result is ready in
time, the approximate index is used.
"""
