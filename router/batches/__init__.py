"""The batch server: OpenAI's `/v1/files` and `/v1/batches`, in the same process as the data plane.

Clients upload JSONL, the router works through the lines as the fleet has capacity, and clients
download the results. Everything that an answer confirms is on disk before the answer: records in
SQLite, file contents in plain files beside it. Each line is sent as an ordinary request of class
batch through the router's own data plane, so routing, queueing and metrics need no special case.

From the outside in
-------------------
    server      opens the folder, answers, works, drains, stops: the interface for the app
    api         the endpoints (file_api, uploads; batch_api), and rules for every answer
    asked       validates clients' input; quota: how much an owner may store; shapes: output
    runner      a task per batch: validates its file (lines), sends its lines, writes the results
    sending     which line is next (line_scheduler, job, feed) and when (concurrency_window)
    sender      one line as a request (inside, secrets); outcome, verdict: what its answer means
    recorder    writes results to the store
    store       the database (rows, database); blob_store: the files; worker: the thread for both

Must never: do file or database work on the event loop, depend on the data plane's internals, or
write a client's secret to disk.
"""
