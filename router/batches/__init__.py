"""The batch server: OpenAI's `/v1/files` and `/v1/batches`, beside the data plane in one process.

Clients upload JSONL, get their lines worked through as the fleet has room, and download the
results. What is promised is on disk before it is answered: SQLite for the books, plain files beside
it for the bytes. The lines themselves go out as ordinary requests of class batch through the
router's own data plane, so that routing, queueing and metrics see nothing special.

From the outside in
-------------------
    server      opens the folder, answers, works, rests, stops: what the app knows of all this
    api         the endpoints (file_api, uploads; batch_api), and what holds for every answer
    asked       what clients ask for, judged; quota: how much they may keep; shapes: what they see
    runner      a task per batch: judge its file (lines), send its lines, write the results
    sending     which line is next (line_scheduler, job, feed) and when (concurrency_window)
    sender      one line as a request (inside, secrets); outcome, verdict: what its answer means
    recorder    results on their way into the books
    store       the books (rows, database); blob_store: the files; worker: the thread for both

Must never: do file or database work on the event loop, know how the data plane works inside, or
write a client's secret down.
"""
