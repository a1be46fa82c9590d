"""The batch door: OpenAI's `/v1/files` and `/v1/batches`, beside the data plane in one process.

Clients upload JSONL, get their lines worked through as the fleet has room, and download the
results. What is promised is on disk before it is answered: SQLite for the books, plain files beside
it for the bytes. The lines themselves go out as ordinary requests of class batch through the
router's own data port, so that routing, queueing and metrics see nothing special.

Must never: do file or database work on the event loop, or know how the data plane works inside.
"""
