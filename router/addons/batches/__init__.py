"""The batch server: OpenAI's `/v1/files` and `/v1/batches`, in the same process as the data plane.

A client uploads a batch file (JSONL). Each line of the file is one request. The router sends the
requests when the fleet has capacity, and the client downloads the results. The batch server
responds to a client only after its changes are on disk: records in an SQLite database, and the
contents of files in a folder. Each line is sent as an ordinary request of class batch through the
router's own data plane. So routing, queueing and metrics need no special case.

The modules, from the interface to the disk
-------------------------------------------
    addon       creates the server from the configuration and the parts of the router
    server      opens the folder, serves requests, drains, stops
    api         the endpoints (file_api, uploads; batch_api; application joins them), the check of
                clients' input (asked) and the formats of responses
    quota       how much an owner (API key or credential) may store
    run         a task per batch (runner): validates its file (lines), chooses the next line
                and the time (job, concurrency_window), sends it as a request (sending, sender,
                inside), and decides what the response means (verdict)
    store       the database (store, rows, database), the files (blob_store), writing results
                (results)
    secrets     the clients' credentials, only in memory
    ids         the IDs of files and batches

Must never: do file or database work on the event loop, depend on the data plane's internals, or
write a client's secret to disk.
"""

from router.addons.batches.addon import make as make
