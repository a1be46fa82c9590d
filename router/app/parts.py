"""Builds and connects all parts of a router from one Config.

Must never: start anything. `App` starts the parts in its own order.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from socket import gethostname

import msgspec

from router.app.fleet_log import FleetLog
from router.app.listeners import OwnListeners
from router.app.reclaims import Reclaims
from router.app.upstream import NO_POOL, Upstream, token_in
from router.config import addons
from router.config.address import parse_replica_url, split_host_port
from router.config.in_force import InForce
from router.config.key_files import read_keys
from router.config.keys import KeyLine, KeysProblem
from router.config.model import Config, Replica as ReplicaConfig
from router.core.addons import load
from router.core.errors import ConfigError
from router.dispatch.addon import Addon, Channel
from router.dispatch.attempts.abort import Aborter
from router.dispatch.chooser import Chooser, Policies
from router.dispatch.context import Context
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.event_loop import LoopScheduler
from router.dispatch.hedging.hedger import Hedger
from router.dispatch.queueing.queue_driver import QueueDriver
from router.dispatch.resumption import resumption_of
from router.dispatch.routing_facts import salt_of
from router.dispatch.rules import pool_timeouts
from router.fleet.discovery.roster import Member, Roster
from router.fleet.discovery.watcher import DiscoveryWatcher, sources_of
from router.fleet.monitor.ask import Asker
from router.fleet.monitor.poller import Poller
from router.fleet.monitor.probe import Prober
from router.fleet.monitor.resolve import Resolver
from router.fleet.names import Names
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.fleet.table.poll_results import POLLS_AWAITED
from router.intake.keys import Keyring
from router.observe.events import log_event
from router.observe.hedge_counts import HedgeCounts
from router.observe.log.access_log import AccessLog, ReplacedLogs
from router.observe.metrics import Metrics
from router.wire.client import ClientConnection, Front, as_protocol
from router.wire.pool import Address, Pool
from router.wire.sweep import Sweeper
from router.wire.tunnel import TUNNEL_BYTES


@dataclass(slots=True)
class Origins:
    """The members of the fleet that the configuration file does not name. A reload replaces it."""

    added: dict[str, ReplicaConfig]  # The replicas that the admin API has added, by ID.
    roster: Roster  # The answers of the sources of discovery.
    discovered: dict[str, Member]  # The members that these sources add, by ID.


class Parts:
    """The parts of one router. Raises ConfigError."""

    def __init__(
        self,
        in_force: InForce,
        metrics: Metrics,
        rng: Random,
        open_files: int,
        siblings: Channel | None = None,
    ) -> None:
        """`in_force`: the configuration; its token is read here. `siblings`: see `App`."""
        self.siblings = siblings
        config = in_force.config
        self.in_force = in_force
        self.metrics = metrics
        self.rng = rng
        self.open_files = open_files
        self.loop = asyncio.get_running_loop()
        self.origins = Origins(
            {}, Roster(sources_of(config.discovery), config.discovery.replicas_max), {}
        )
        self.discovery = DiscoveryWatcher(in_force, rng, failed)
        # A function that is called when a replica has come up.
        self.on_up: Callable[[], object] | None = None
        self.sweeper = Sweeper(self.loop, failed)
        self.own = OwnListeners(config)
        self.upstream = Upstream(config, self.own)
        in_force.token = self.upstream.token
        self.keys: Sequence[KeyLine] = keys_in(config)
        self.replaced_logs = ReplacedLogs()
        self.hedge_counts = HedgeCounts()
        self.fleet = self._make_fleet(config)
        self.fleet_log = FleetLog(self.fleet.replicas, self.loop)
        self.context = self._make_context(config)
        self.use_names(Names(config))
        self.dispatcher = Dispatcher(
            self.context,
            config,
            self.sweeper,
            open_log(config),
            self.upstream.authorization,
            Keyring(self.keys),
        )
        self.reclaims = Reclaims(config.spot, self.fleet, self.dispatcher.exchanges, self.loop)
        self.front = Front(
            self.dispatcher,
            self.sweeper,
            config.limits,
            config.timeouts,
            tally=metrics,
            via=config.via.encode("ascii"),
            max_clients=0,
            allow_half_close=config.allow_half_close,
            cors=config.cors,
        )
        self.limit_clients(config)
        self.prober = Prober(self.fleet, in_force, rng, failed)
        self.poller = Poller(self.fleet, in_force, rng, failed)
        self.aborter = self.dispatcher.aborter = Aborter(config.aborts, Asker(in_force))
        self._connect()
        self.addons: dict[str, Addon] = {}  # By name.
        self.add_addons(self.new_addons(config, self.keys))
        for addon in self.addons.values():
            addon.adopt(config)

    def _make_fleet(self, config: Config) -> Fleet:
        fleet = Fleet(
            config.health,
            self.sweeper,
            self.rng,
            self.fleet_changed,
            self._fleet_event,
            knowledge=PrefixLookup(config.prefix),
            stale_s=config.polling.stale_s,
        )
        fleet.nearest.adopt(config)
        return fleet

    def _make_context(self, config: Config) -> Context:
        fleet = self.fleet
        return Context(
            config,
            fleet,
            Chooser(
                Policies.of(config.routing),
                fleet.knowledge,
                self.metrics,
                self.rng,
                nearest=fleet.nearest,
                adapters=fleet.adapter_names,
            ),
            Hedger(config.hedging, fleet, self.hedge_counts),
            self.metrics,
            LoopScheduler(self.loop),
            self.rng,
            self.in_force.token,
            resumption_of(config, self.metrics),
        )

    def _connect(self) -> None:
        """Sets the functions by which the fleet and the queue ask for a probe or a poll."""
        hooks, queue = self.fleet.hooks, self.queue
        hooks.ranks = self._ranks_changed
        hooks.doubted_list = self.prober.read_list
        hooks.unknown_model = self.prober.read_lists
        hooks.lost = self.prober.look_for_death
        if queue is not None:
            queue.poll_early = self.poller.poll_early

    @property
    def config(self) -> Config:
        return self.in_force.config

    @property
    def queue(self) -> QueueDriver | None:
        """`None`: requests are sent without queueing."""
        return self.context.queue

    @property
    def log(self) -> AccessLog:
        return self.dispatcher.completion.log

    def failed(self, err: BaseException) -> None:
        """Logs an unexpected exception, for the addons."""
        failed(err)

    def new_addons(self, config: Config, keys: Sequence[KeyLine]) -> dict[str, Addon]:
        """Makes the addons that a configuration needs and that do not exist. Raises ConfigError."""
        found: dict[str, Addon] = {}
        for name, setting in addons.wanted(config, keys).items():
            make = getattr(load(name, setting), "make", None)
            if make is not None and name not in self.addons:
                found[name] = make(self, config)
        return found

    def add_addons(self, made: dict[str, Addon]) -> None:
        """Adds new addons, and their metrics. Cannot fail."""
        self.addons.update(made)
        for name, addon in made.items():
            for number, source in enumerate(addon.families):
                self.metrics.added[f"{name} {number}"] = source

    def connect_within(self) -> asyncio.Protocol:
        """Creates the protocol for a connection from an addon inside this process."""
        client = ClientConnection(self.front, is_within=True)
        client.peer = "127.0.0.1"
        return as_protocol(client)

    def max_clients(self, config: Config) -> int:
        # A client's request may need a second open file, the connection to a replica. So less than
        # half of the allowed open files are client connections. The rest is for the admin port.
        most = max(64, int(self.open_files * 0.45))
        return min(config.limits.connections or most, most)

    def limit_clients(self, config: Config) -> None:
        """Limits client connections, and requests for files and batches among them."""
        self.front.max_clients = most = self.max_clients(config)
        by_memory = config.limits.bodies_total // TUNNEL_BYTES
        self.dispatcher.tunnels_most = max(2, min(most // 8, by_memory))

    def make_replica(self, replica: ReplicaConfig, config: Config, upstream: Upstream) -> Replica:
        """Creates a replica for a configuration, which need not be in force yet."""
        url = parse_replica_url(replica.url)
        own = config.pools.get(replica.pool, NO_POOL)
        server_name = own.server_name
        if server_name is None and not own.external:
            server_name = upstream.server_name
        address = Address(
            url.host,
            url.port,
            tls=upstream.tls_of(replica) if url.is_tls else None,
            server_name=server_name,
            resolve=Resolver(url.host, _unresolved),
            is_own=self.own.has,
        )
        pool = Pool(
            address,
            config.limits,
            pool_timeouts(config),
            self.sweeper,
            self.loop,
            self.metrics,
            self.front.outbox,
        )
        made = Replica(replica, config.health, pool, upstream.access.get(replica.id))
        made.health.await_probe()
        if config.polling.interval_s and not own.external:
            made.reports.await_polls(POLLS_AWAITED)
        return made

    def watch(self, replica: Replica) -> None:
        """Starts to probe and poll a replica."""
        self.prober.watch(replica)
        self.poller.watch(replica)
        for addon in self.addons.values():
            addon.watch(replica)

    def unwatch(self, replica: Replica) -> None:
        self.prober.unwatch(replica)
        self.poller.unwatch(replica)
        for addon in self.addons.values():
            addon.unwatch(replica)

    def _ranks_changed(self, replica: Replica, left: Sequence[Replica]) -> None:
        for rank in left:
            self.metrics.forget_replica(rank.id)
        for addon in self.addons.values():
            addon.ranks_changed(replica)

    def use_names(self, names: Names) -> None:
        """Uses what the configured names stand for, for all later requests."""
        self.fleet.adopt_names(names)
        self.metrics.configured = names.routed

    async def start_watching(self, *, waits: bool) -> None:
        """Probes every replica once, then starts periodic probes, polls and the addons.

        `waits`: see `Addon.start`. Raises ConfigError.
        """
        await self.prober.start()
        await self.poller.start()
        for addon in self.addons.values():
            await addon.start(waits=waits)

    async def stop_watching(self) -> None:
        for addon in self.addons.values():
            await addon.stop()
        await self.prober.stop()
        await self.poller.stop()
        await self.discovery.stop()
        self.reclaims.stop()

    # -- what the parts report ----------------------------------------------------------------

    def fleet_changed(self, ids: frozenset[str]) -> None:
        self.context.chooser.fleet_changed(ids, self.fleet.replicas, failed)
        self.context.hedger.times.fleet_changed()
        self.fleet_log.fleet_changed(ids)

    def _fleet_event(self, what: str, replica: Replica) -> None:
        if what == "ejected":
            self.metrics.ejections(replica.id)
        self.fleet_log.happened(what, replica)
        if what == "up":
            self.poller.poll_early(replica)
            if self.on_up is not None:
                self.on_up()


def admin_token(config: Config) -> str | None:
    """Return the token of the admin port; `None`: none is configured. Raises ConfigError."""
    return token_in(config.admin, "admin")


def admin_names(config: Config) -> tuple[str, ...]:
    """Return the names in the field `Host` under which the admin port answers."""
    admin = config.admin
    listens = [text for text in (admin.listen, admin.probes_listen) if text is not None]
    return (*admin.hosts, gethostname(), *(split_host_port(text)[0] for text in listens))


def keys_in(config: Config) -> tuple[KeyLine, ...]:
    """Reads the API keys. Raises ConfigError."""
    try:
        return read_keys(config.keys)
    except KeysProblem as err:
        raise ConfigError([f"keys.{err.field}: {err}"]) from None


def open_log(config: Config) -> AccessLog:
    """Opens the access log. Raises ConfigError."""
    log = config.access_log
    try:
        salt = salt_of(config)
        return AccessLog(log.path, log.flush_s, log.queue, salt, log.blocks, log.iso_time)
    except OSError as err:
        raise ConfigError([f"access_log.path: cannot be written: {err.strerror}"]) from None


def config_hash(config: Config) -> str:
    """Return a hash of the configuration: twelve hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:12]


def failed(err: BaseException) -> None:
    log_event(logging.ERROR, "a background task of the router failed", error=repr(err))


def _unresolved(host: str, why: str) -> None:
    log_event(logging.WARNING, "host name does not resolve", key=host, host=host, error=why)
