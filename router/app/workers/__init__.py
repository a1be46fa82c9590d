"""Several processes on one port: `workers: N`.

`parent` owns the sockets, starts the workers with the messages of `app/restart`, and starts one
again that has ended. `link` carries the frames of `frames` between the parent and its workers.
`siblings` is a worker's side of it, `balance` spreads the connections of clients evenly, and
`combined` makes one answer of the admin port from those of all workers.

`parent` is imported only if there is more than one worker.
"""
