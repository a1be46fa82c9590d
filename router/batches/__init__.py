"""The batch server: OpenAI's `/v1/files` and `/v1/batches`, in the same process as the data plane.

Clients upload JSONL, the router works through the lines as the fleet has capacity, and clients
download the results. Everything that an answer confirms is on disk before the answer: records in
SQLite, file contents in plain files beside it. Each line is sent as an ordinary request of class
batch through the router's own data plane, so routing, queueing and metrics need no special case.

From the outside in
-------------------
    server      opens the folder, answers, works, drains, stops: the interface for the app
    api         the endpoints (file_api, uploads; batch_api; application joins them), the check of
                clients' input (asked) and the shapes of answers
    quota       how much an owner may store
    run         a task per batch (runner): validates its file (lines), chooses the next line
                (line_scheduler, job, feed) and the time (concurrency_window), sends it as a request
                (sending, sender, inside), and decides what the answer means (outcome, verdict)
    store       the database (store, rows, database), the files (blob_store), writing results
                (recorder, results), and the thread for all of them (worker)
    secrets     the clients' credentials, held only in memory; ids: names of files and batches

Must never: do file or database work on the event loop, depend on the data plane's internals, or
write a client's secret to disk.
"""
