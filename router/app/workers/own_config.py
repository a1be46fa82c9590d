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
    limits = replace(
        limits,
        bodies_total=max(limits.body, limits.bodies_total // workers),
        connections=-(-limits.connections // workers),
    )
    if not (log.salt or config.share.url):
        log = replace(log, salt=worker.salt)
    waiting = config.queue.limits
    waiting = replace(waiting, bytes=max(limits.body, waiting.bytes // workers))
    queue = replace(config.queue, limits=waiting)
    return replace(config, limits=limits, queue=queue, access_log=log)
