"""Creates the batch server from the configuration and the parts of the router."""

from __future__ import annotations

import logging
from functools import partial

import msgspec

from router.addons.batches.server import BatchServer
from router.config.model import Config
from router.core.urgency import BATCH
from router.dispatch.addon import Host
from router.dispatch.queueing.queue_driver import QueueDriver
from router.dispatch.tenants import Tenants
from router.observe.events import log_event


def make(host: Host, config: Config) -> BatchServer:
    # Batches may use a quarter of the open files of the data port. Each line needs those of two
    # connections of clients.
    most = min(config.batches.concurrency, max(1, host.max_clients(config) // 8))
    rules = msgspec.structs.replace(config.batches, concurrency=most)
    if config.keys.file is None and config.keys.folder is None:
        rules = msgspec.structs.replace(rules, keyless_share=1.0)
    tenants = host.dispatcher.tenants
    waiting = None if host.queue is None else partial(lines_waiting, host.queue, tenants)
    server = BatchServer(rules, tenants.token, waiting, host.connect_within)
    host.dispatcher.batch_server = server
    if not config.keys.required:
        log_event(
            logging.WARNING,
            "clients without a key share their files and batches",
            remedy="set keys.required",
        )
    return server


def lines_waiting(driver: QueueDriver, tenants: Tenants, owner: str, model: str) -> int:
    """Return how many requests of class batch wait for the replicas of a model that `owner` may
    use.

    Requests that wait because of a limit of their key do not count, so that they do not delay the
    batches of other owners. Each key has only a few such batch requests. For the same reason,
    requests that wait for other regions do not count.
    """
    queue = driver.pools.of(model)
    if not tenants.limits_regions:
        return queue.eligible[BATCH]
    return queue.eligible_before(BATCH, tenants.allowed_of(owner))
