"""What each of several workers makes of the configuration of all."""

from __future__ import annotations

from msgspec.structs import replace

from router.app.restart.messages import Worker
from router.config.model import Config


def own_config(config: Config, worker: Worker) -> Config:
    """Return the configuration of one worker.

    Limits of memory and of connections are divided, so that all workers together keep them. Without
    a salt, and without a server that gives one, the workers get one from their parent.
    """
    workers = len(worker.doors)
    limits, log = config.limits, config.access_log

    def part(total: int) -> int:  # The largest body must fit.
        return min(total, max(limits.body, total // workers))

    waiting = config.queue.limits
    queue = replace(config.queue, limits=replace(waiting, bytes=part(waiting.bytes)))
    limits = replace(
        limits,
        bodies_total=part(limits.bodies_total),
        connections=-(-limits.connections // workers),
    )
    if not (log.salt or config.share.url):
        log = replace(log, salt=worker.salt)
    return replace(config, limits=limits, queue=queue, access_log=log)
