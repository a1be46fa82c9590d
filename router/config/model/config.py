"""Declares the top level of the configuration file, which consists of all sections."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from router.config.model.classes import Classes
from router.config.model.clients import Bodies, Cors, Limits, Timeouts, Tls
from router.config.model.process import AccessLog, Admin, Batches, Drain, Emulator, Sharing
from router.config.model.queue import Queue
from router.config.model.replicas import Aborts, Discovery, Health, Polling, Replica, Spot, Upstream
from router.config.model.routing import (
    Continuation,
    Hedging,
    ModelRoute,
    Pool,
    Prefix,
    Regions,
    Retry,
    Routing,
)
from router.config.model.setting_types import Frozen, Restart
from router.config.model.tenants import Keys, Priority, Usage


class Config(Frozen, frozen=True):
    """The top-level settings of the configuration file."""

    # The data port, to which clients connect: one address, or a list, such as `0.0.0.0:8080` and
    # `[::]:8080` for IPv4 and IPv6.
    listen: Annotated[str, Restart] = "0.0.0.0:8080"
    # Number of processes that serve the data port together, for more than one core. They act as one
    # router, and the limits of memory and of connections are those of all. The length of the queue
    # and the limits of connections to a replica are those of each.
    workers: Annotated[int, msgspec.Meta(ge=1, le=64), Restart] = 1
    admin: Admin = Admin()
    replicas: tuple[Replica, ...] = ()  # The replicas, which are endpoints of inference engines.
    discovery: Discovery = Discovery()
    pools: dict[str, Pool] = {}  # The pools of replicas, by name.
    # Names that clients may write in `model`, and the models that they stand for. A target must be
    # a name that replicas serve. If the only target of a name is another name of this section, both
    # have the same targets.
    models: dict[str, ModelRoute] = {}
    region: str = ""  # The region of the router, which clients without a region prefer.
    # The zone of the router. Replicas of this zone in the router's region are nearest.
    zone: str = ""
    regions: Regions = Regions()
    routing: Routing = Routing()
    limits: Limits = Limits()
    bodies: Bodies = Bodies()
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    hedging: Hedging = Hedging()
    queue: Queue = Queue()
    classes: Classes = Classes()
    priority: Priority = Priority()
    keys: Keys = Keys()
    continuation: Continuation = Continuation()
    aborts: Aborts = Aborts()
    health: Health = Health()
    polling: Polling = Polling()
    prefix: Annotated[Prefix, Restart] = Prefix()
    usage: Usage = Usage()
    upstream: Upstream = Upstream()
    tls: Tls | None = None
    cors: Cors = Cors()
    access_log: AccessLog = AccessLog()
    # The lowest level of the router's messages on standard error. Changes of a replica's state,
    # such as `replica down`, have the level `warning`.
    log_level: Literal["info", "warning", "error"] = "info"
    batches: Annotated[Batches, Restart] = Batches()
    share: Annotated[Sharing, Restart] = Sharing()
    drain: Drain = Drain()
    # When /readyz and /health return 200, so that load balancers use the router. A draining router
    # always returns 503. after_first_replica: since a replica was up for the first time; while all
    # replicas are down, requests wait in the queue, and files and batches are served.
    # when_any_replica: while a replica is up, for routers that reach different replicas. always:
    # from the start, for fleets that begin without replicas.
    ready: Literal["after_first_replica", "when_any_replica", "always"] = "after_first_replica"
    spot: Spot = Spot()
    emulate: Annotated[Emulator, Restart] = Emulator()
    # Reload when this file, or the files of keys, tokens or certificates have changed.
    watch: bool = False
    # Paths of the engines' control endpoints that clients may use, or of OpenAI's API without /v1,
    # such as /chat/completions, if the engines serve them. All others return 404.
    allow_paths: tuple[str, ...] = ()
    # Networks of proxies whose X-Forwarded-* and x-request-id headers are trusted.
    trusted_proxies: tuple[str, ...] = ()
    # A client that closes its sending side after a request still gets the response.
    allow_half_close: bool = False
    # The router's name in the header `Via`. A request whose `Via` has this name is refused as a
    # loop.
    via: str = "hedgerow"
    # Add the header X-Router-Replica, which names the replica, to responses.
    debug_headers: bool = False
