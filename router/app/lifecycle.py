"""The lifecycle of one router: start, reload, drain, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random
from time import monotonic
from typing import Any

from router.app import (
    discovery_families,
    estimates,
    families,
    queued,
    reload,
    report,
    spot_families,
    usage,
)
from router.app.discovered import Discovered
from router.app.members import Members
from router.app.parts import Parts, config_hash
from router.config.address import split_host_port
from router.config.model import Admin as AdminConfig
from router.config.model import Config
from router.config.model import Replica as ReplicaConfig
from router.config.tls import Certificate, FileProblem, admin_context
from router.core.build import VERSION, build_kind
from router.core.errors import ConfigError
from router.core.limits import raise_open_files
from router.emulator.spawn import EmulatedFleet, FleetError
from router.observe.admin.listener import Admin
from router.observe.events import log_event
from router.observe.families import hedge_families
from router.observe.families.collector import Collector
from router.observe.families.family import Source
from router.observe.metrics import Metrics
from router.wire.client import ClientConnection, as_protocol

BACKLOG = 4096
# Maximum number of turns of the event loop that a stop waits until aborted connections have ended.
_SETTLE_TURNS = 1000
_NAMED = 8  # Maximum number of replicas that are down and that one log event names.


class App:
    """One router. Call `start` first, and `stop` once at the end."""

    parts: Parts  # The parts of the router, set by `start`.
    members: Members  # Changes of the fleet's members, set by `start`.
    discovered: Discovered  # The replicas of discovery, set by `start`.

    def __init__(
        self,
        config: Config,
        read_again: Callable[[], Config] | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        self.config = config
        self.read_again = read_again
        self.metrics = Metrics()
        self.drained = asyncio.Event()  # Set when a drain has finished.
        self.draining = False
        self.port = 0
        self.admin_port = 0
        self.probes_port = 0  # The port of `admin.probes_listen`; 0: there is none.
        self._rng = Random(seed)
        self._drain_task: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._emulated: EmulatedFleet | None = None
        self._emulated_replicas: tuple[ReplicaConfig, ...] = ()
        self._certificate: Certificate | None = None
        self._open_files = 0
        self._is_ready_logged = False  # Whether the log event "ready" was written.
        # The drain does not wait for a load balancer, because no client is connected.
        self._is_alone = False

    # -- start --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Builds the parts, probes the replicas once, and begins to listen.

        Raises OSError or ConfigError.
        """
        config = self.config
        log_event(logging.INFO, "starting", version=VERSION, build=build_kind())
        self._open_files = raise_open_files()
        self.parts = parts = Parts(config, self.metrics, self._rng, self._open_files)
        self.metrics.config_hash = config_hash(config)
        self.members = Members(parts)
        self.discovered = Discovered(parts)
        self._admin = Admin(self, self._collector(parts), parts.authority)
        try:
            if config.emulate.count:
                await self._emulate(config)
            replicas = (*config.replicas, *self._emulated_replicas)
            parts.fleet.add_all(
                [parts.make_replica(replica, config, parts.upstream) for replica in replicas]
            )
            await self.discovered.start()
            await parts.start_watching()
            self.discovered.begin()
            await self._listen()
        except BaseException:
            await self.stop()
            raise
        self._log_ready(at_start=True)
        if not self._is_ready_logged:
            # `_log_ready` is called in a later turn of the event loop: when the fleet calls
            # `on_up`, the replica does not get requests yet.
            parts.on_up = partial(parts.loop.call_soon, self._log_ready)

    def _collector(self, parts: Parts) -> Collector:
        state = families.Lifecycle(lambda: self.ready()[0], lambda: self.draining)
        sources: list[Source[Any]] = [
            Source(hedge_families.FAMILIES, lambda: parts.hedge_counts),
            Source(families.FLEET, lambda: parts),
            Source(spot_families.FAMILIES, lambda: parts.reclaims),
            Source(discovery_families.FAMILIES, lambda: self.discovered),
            Source(families.LIFECYCLE, lambda: state),
        ]
        queue = parts.queue
        if queue is not None:
            sources.append(Source(families.QUEUE, lambda: queue))
            sources.append(Source(families.QUEUE_COUNTS, lambda: families.queue_counts(queue)))
        return Collector(self.metrics, *sources)

    def _log_ready(self, *, at_start: bool = False) -> None:
        """Logs once that a replica is up. At the start, also logs if no replica is up, and why."""
        parts, config = self.parts, self.config
        if self._is_ready_logged or not (at_start or parts.fleet.ready):
            return
        self._is_ready_logged = bool(parts.fleet.ready)
        away = [r for r in parts.fleet.replicas.values() if not r.health.up]
        down = "; ".join(f"{r.id}: {r.health.why_down or 'no answer yet'}" for r in away[:_NAMED])
        said: dict[str, Any] = {"down": down} if down else {}
        log_event(
            logging.INFO if self._is_ready_logged else logging.WARNING,
            "ready" if self._is_ready_logged else "listening, and no replica is up",
            listen=f"{split_host_port(config.listen)[0]}:{self.port}",
            admin=f"{split_host_port(config.admin.listen)[0]}:{self.admin_port}",
            replicas=len(parts.fleet.replicas),
            up=len(parts.fleet.ready),
            policy=config.routing.policy,
            classes=report.classes(parts),
            open_files=self._open_files,
            **said,
        )

    async def _emulate(self, config: Config) -> None:
        self._emulated = EmulatedFleet(config.emulate.count, config.emulate.model)
        try:
            urls = await self._emulated.start()
        except FleetError as err:
            raise OSError(str(err)) from None
        self._emulated_replicas = tuple(
            ReplicaConfig(url=url, id=f"emulated-{n}", region=config.region)
            for n, url in enumerate(urls)
        )

    async def _listen(self) -> None:
        config = self.config
        if config.tls is not None:
            try:
                self._certificate = Certificate(config.tls)
            except FileProblem as err:
                raise ConfigError([f"tls.{err.field}: {err}"]) from None
        tls = None if self._certificate is None else self._certificate.context
        batch_server = self.parts.batch_server
        if batch_server is not None:
            await batch_server.open()
        await self._listen_for_admin(config.admin)
        host, port = split_host_port(config.listen)
        front = self.parts.front
        self._server = await self.parts.loop.create_server(
            lambda: as_protocol(ClientConnection(front, tls)),
            host,
            port,
            backlog=BACKLOG,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        if batch_server is not None:
            await batch_server.run(self._from_within)

    async def _listen_for_admin(self, admin: AdminConfig) -> None:
        try:
            tls = None if admin.tls is None else admin_context(admin.tls)
        except FileProblem as err:
            raise ConfigError([f"admin.tls.{err.field}: {err}"]) from None
        await self._admin.start(*split_host_port(admin.listen), tls)
        self.admin_port = self._admin.addresses[0][1]
        if admin.probes_listen is not None:
            await self._admin.start_probes(*split_host_port(admin.probes_listen))
            self.probes_port = self._admin.addresses[-1][1]

    def _from_within(self) -> asyncio.Protocol:
        """Creates the protocol for a connection from the batch server inside this process."""
        client = ClientConnection(self.parts.front)
        client.peer = "127.0.0.1"
        return as_protocol(client)

    # -- stop ---------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops now: ends requests in progress with an error, and closes everything."""
        self.draining = True
        task, self._drain_task = self._drain_task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        parts = self.parts
        if parts.batch_server is not None:
            await parts.batch_server.stop()
        self.discovered.stop()
        await parts.stop_watching()
        parts.context.closing = True
        for exchange in list(parts.dispatcher.exchanges):
            exchange.shut()
        await parts.aborter.close()
        # The error responses that were written above are sent in the next turn of the event loop.
        await asyncio.sleep(0)
        for client in list(parts.front.clients):
            client.transport.abort()
        for replica in (*parts.fleet.replicas.values(), *parts.fleet.leaving):
            replica.pool.abort()
        for _ in range(_SETTLE_TURNS):
            if not self._unsettled():
                break
            await asyncio.sleep(0)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
        await self._admin.stop()
        parts.sweeper.close()
        parts.log.close()
        if self._emulated is not None:
            await self._emulated.stop()
        self.drained.set()

    def _unsettled(self) -> int:
        census = self.census()
        return sum(census.values()) - sum(census[name] for name in ("probes", "polls", "parties"))

    # -- drain (AdminActions) -----------------------------------------------------------------

    def drain(self, *, by_hand: bool = False) -> None:
        """Lets the requests in progress finish, then sets `drained`. A second call does nothing.

        `by_hand`: a person has stopped the router (SIGINT). Then, if no client is connected, the
        router does not wait until a load balancer has noticed the drain.
        """
        if not self.draining:
            self.draining = True
            self._is_alone = by_hand and not any(self._under_way().values())
            log_event(logging.INFO, "draining", **self._under_way())
            self._drain_task = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        drain = self.config.drain
        # For this time the port still accepts connections, so that a load balancer can read
        # /readyz.
        if not self._is_alone:
            await asyncio.sleep(drain.lame_duck_s)
        if self.parts.batch_server is not None:
            self.parts.batch_server.rest()
        if self._server is not None:
            self._server.close()
        front = self.parts.front
        front.draining = True
        for client in list(front.clients):
            client.shut()
        deadline = monotonic() + drain.grace_s
        while (front.clients or self.parts.dispatcher.exchanges) and monotonic() < deadline:
            await asyncio.sleep(0.05)
        log_event(logging.INFO, "drained", **self._under_way())
        self.drained.set()

    def _under_way(self) -> dict[str, Any]:
        parts = self.parts
        return {"requests": len(parts.dispatcher.exchanges), "clients": len(parts.front.clients)}

    # -- reports (AdminActions) ---------------------------------------------------------------

    def ready(self) -> tuple[bool, str]:
        if self.draining:
            return False, "draining"
        if not self.parts.fleet.ready:
            return False, "no replica is up"
        return True, "ready"

    def replicas(self) -> list[dict[str, Any]]:
        return report.replicas(self.parts)

    def hedging(self) -> dict[str, Any]:
        return report.hedging(self.parts)

    def queue(self) -> dict[str, Any]:
        errors = estimates.described(self.parts.context.estimates, self.metrics)
        return {**queued.described(self.parts.queue), "ttft_estimates": errors}

    async def usage(self) -> dict[str, Any]:
        return await usage.described(self.metrics.usage)

    def census(self) -> dict[str, int]:
        """Returns the numbers of resources in use now. Every number is 0 after `stop`."""
        return report.census(self.parts)

    # -- reload (AdminActions) ----------------------------------------------------------------

    async def reload(self) -> str:
        """Reads the configuration again and applies it. Returns the hash of the new configuration.

        If the new configuration is invalid, raises ConfigError, and the old configuration stays in
        force.
        """
        try:
            config = self.read_again() if self.read_again is not None else self.config
            prepared = reload.prepare(self.parts, config, self._emulated_replicas)
        except ConfigError as err:
            self.metrics.reloaded(False)
            log_event(logging.ERROR, "reload refused", key=None, problems=err.problems)
            raise
        reload.commit(self.parts, prepared, self._certificate)
        self.discovered.reloaded()
        self.config = config
        self.parts.log.reopen()
        self.metrics.reloaded(True, config_hash(config))
        log_event(logging.INFO, "reloaded", key=None, hash=self.metrics.config_hash)
        return self.metrics.config_hash
