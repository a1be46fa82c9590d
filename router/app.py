"""The whole router: builds every part from a Config, starts, reloads, drains, stops.

This is the only file that knows all the others. `App` is one router inside an event loop, as tests
and `serve` use it; `serve` is the process around it, with its signals.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import signal
import ssl
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Any

import msgspec

from policies.contract import make_policy
from router.config.address import parse_replica_url, split_host_port
from router.config.model import Config
from router.config.model import Replica as ReplicaConfig
from router.config.tls import FileProblem, listening_context, replica_context, upstream_token
from router.core.errors import ConfigError
from router.core.limits import raise_open_files
from router.dispatch.dispatcher import Dispatcher
from router.emulator.spawn import EmulatedFleet, FleetError
from router.fleet.probe import Prober
from router.fleet.replica import Replica
from router.fleet.resolve import Resolver
from router.fleet.table import Fleet
from router.observe import events
from router.observe.access_log import AccessLog
from router.observe.admin import Admin
from router.observe.collector import Collector, Gauges
from router.observe.events import log_event
from router.observe.metrics import Metrics
from router.wire.client import ClientConnection, Front
from router.wire.outbox import Outbox
from router.wire.plans import Plans
from router.wire.pool import Address, Pool
from router.wire.sweep import Sweeper

BACKLOG = 4096
_SETTLE_TURNS = 1000  # turns of the loop in which aborted connections report their end


class App:
    """One router. `start`, then `stop` once; in between `reload` and `drain`."""

    def __init__(
        self,
        config: Config,
        read_again: Callable[[], Config] | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        self.config = config
        self._read_again = read_again
        self._rng = Random(seed)
        self.metrics = Metrics()
        self.drained = asyncio.Event()  # set when a drain is over and nothing is left to do
        self._draining = False
        self._drain_task: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._emulated: EmulatedFleet | None = None
        self._emulated_replicas: tuple[ReplicaConfig, ...] = ()
        self._tls: ssl.SSLContext | None = None
        self._open_files = 0
        self._old_logs: list[AccessLog] = []
        self.port = 0
        self.admin_port = 0

    # -- start --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Build, probe the replicas once, listen. Raises OSError or ConfigError."""
        config = self.config
        loop = asyncio.get_running_loop()
        self._open_files = raise_open_files()
        self._sweeper = Sweeper(loop, self._failed)
        self._outbox = Outbox(loop)
        self._policy = make_policy(config.routing.policy, config.routing.options)
        self._upstream = _Upstream(config)
        try:
            self._log = _access_log(config)
        except OSError as err:
            raise ConfigError([f"access_log.path: cannot be written: {err.strerror}"]) from None
        self._fleet = Fleet(
            config.health, self._sweeper, self._rng, self._fleet_changed, self._fleet_event
        )
        self._dispatcher = Dispatcher(
            config,
            self._fleet,
            self._policy,
            self._sweeper,
            self.metrics,
            self._log,
            self._rng,
            self._upstream.authorization,
        )
        self._front = Front(
            self._dispatcher,
            self._sweeper,
            config.limits,
            config.timeouts,
            tally=self.metrics,
            outbox=self._outbox,
            via=config.via.encode("ascii"),
            max_clients=self._max_clients(config),
            allow_half_close=config.allow_half_close,
        )
        self.metrics.config_hash = _hash(config)
        self._admin = Admin(self, Collector(self.metrics, self._gauges()))
        self._prober = Prober(
            self._fleet,
            config,
            self._upstream.token,
            self._upstream.tls,
            self._rng,
            self._failed,
        )
        try:
            if config.emulate.count:
                await self._emulate(config)
            for replica in (*config.replicas, *self._emulated_replicas):
                self._fleet.add(self._make_replica(replica))
            await self._prober.start()
            await self._listen()
        except BaseException:
            await self.stop()
            raise
        log_event(
            logging.INFO,
            "ready",
            listen=f"{split_host_port(config.listen)[0]}:{self.port}",
            admin=f"{split_host_port(config.admin)[0]}:{self.admin_port}",
            replicas=len(self._fleet.replicas),
            up=len(self._fleet.ready),
            policy=config.routing.policy,
            open_files=self._open_files,
        )

    async def _emulate(self, config: Config) -> None:
        self._emulated = EmulatedFleet(config.emulate.count, config.emulate.model)
        try:
            urls = await self._emulated.start()
        except FleetError as err:
            raise OSError(str(err)) from None
        self._emulated_replicas = tuple(
            ReplicaConfig(url=url, id=f"emulated-{n}") for n, url in enumerate(urls)
        )

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        config = self.config
        if config.tls is not None:
            try:
                self._tls = listening_context(config.tls)
            except FileProblem as err:
                raise ConfigError([f"tls.{err.field}: {err}"]) from None
        host, port = split_host_port(config.admin)
        await self._admin.start(host, port)
        self.admin_port = self._admin.addresses[0][1]
        host, port = split_host_port(config.listen)
        front = self._front
        self._server = await loop.create_server(
            lambda: ClientConnection(front),
            host,
            port,
            ssl=self._tls,
            # A handshake is held to what a head is held to.
            ssl_handshake_timeout=config.timeouts.head_s if self._tls is not None else None,
            backlog=BACKLOG,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def _max_clients(self, config: Config) -> int:
        # Each client may need a connection to a replica, too.
        return config.limits.connections or max(64, int(self._open_files * 0.45))

    def _make_replica(self, config: ReplicaConfig) -> Replica:
        url = parse_replica_url(config.url)
        upstream = self._upstream
        address = Address(
            url.host,
            url.port,
            tls=upstream.tls if url.is_tls else None,
            server_name=upstream.server_name,
            resolve=Resolver(url.host, self._unresolved),
        )
        pool = Pool(
            address,
            self.config.limits,
            self.config.timeouts,
            self._sweeper,
            asyncio.get_running_loop(),
            self.metrics,
            self._outbox,
        )
        return Replica(config, self.config.health, pool)

    # -- stop ---------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop now: what is under way is ended with an error, everything is closed."""
        self._draining = True
        task, self._drain_task = self._drain_task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        await self._prober.stop()
        dispatcher = self._dispatcher
        dispatcher.closing = True
        for exchange in list(dispatcher.exchanges):
            exchange.shut()
        # What the answers above wrote is given a turn of the loop to leave.
        await asyncio.sleep(0)
        for client in list(self._front.clients):
            client.transport.abort()
        for replica in (*self._fleet.replicas.values(), *self._fleet.leaving):
            replica.pool.abort()
        for _ in range(_SETTLE_TURNS):
            if not self._unsettled():
                break
            await asyncio.sleep(0)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
        await self._admin.stop()
        self._sweeper.close()
        self._log.close()
        if self._emulated is not None:
            await self._emulated.stop()
        self.drained.set()

    def _unsettled(self) -> int:
        census = self.census()
        return sum(census.values()) - census["probes"] - census["parties"]

    def census(self) -> dict[str, int]:
        """What is in use now; every number is 0 after `stop`."""
        replicas = [*self._fleet.replicas.values(), *self._fleet.leaving]
        open_ = sum(len(r.pool.all) for r in replicas)
        idle = sum(r.pool.idle for r in replicas)
        return {
            "leases": sum(r.inflight for r in replicas),
            "clients": len(self._front.clients),
            "exchanges": len(self._dispatcher.exchanges),
            "replica_busy": open_ - idle,
            "replica_idle": idle,
            "replica_connecting": sum(r.pool.connecting for r in replicas),
            "replica_waiting": sum(r.pool.waiting for r in replicas),
            "held_bytes": self._front.held_bytes,
            "retries": self._dispatcher.budget.retries,
            "probes": self._prober.running,
            "parties": len(self._sweeper.parties),
        }

    # -- drain (AdminActions) -----------------------------------------------------------------

    def drain(self) -> None:
        """Finish what is under way, then set `drained`; again does nothing."""
        if not self._draining:
            self._draining = True
            log_event(logging.INFO, "draining", **self._under_way())
            self._drain_task = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        drain = self.config.drain
        # Whoever balances over us needs time to see readyz: the port still accepts.
        await asyncio.sleep(drain.lame_duck_s)
        if self._server is not None:
            self._server.close()
        front = self._front
        front.draining = True
        for client in list(front.clients):
            client.shut()
        deadline = monotonic() + drain.grace_s
        while (front.clients or self._dispatcher.exchanges) and monotonic() < deadline:
            await asyncio.sleep(0.05)
        log_event(logging.INFO, "drained", **self._under_way())
        self.drained.set()

    def _under_way(self) -> dict[str, Any]:
        return {"requests": len(self._dispatcher.exchanges), "clients": len(self._front.clients)}

    def ready(self) -> tuple[bool, str]:
        if self._draining:
            return False, "draining"
        if not self._fleet.ready:
            return False, "no replica is up"
        return True, "ready"

    def replicas(self) -> list[dict[str, Any]]:
        """For people and scripts: GET /replicas."""
        now = monotonic()
        return [
            {
                "id": r.id,
                "url": r.config.url,
                "state": r.state(now),
                "models": sorted(r.models) if r.models is not None else None,
                "inflight": r.inflight,
                "max_inflight": r.config.max_inflight,
                "weight": r.weight,
                "served": r.served,
                "failures_in_a_row": r.health.failures,
                "ejections": r.health.ejections,
                "connections": {"open": len(r.pool.all), "idle": r.pool.idle},
            }
            for r in (*self._fleet.replicas.values(), *self._fleet.leaving)
        ]

    # -- reload (AdminActions) ----------------------------------------------------------------

    async def reload(self) -> str:
        """Read the configuration again and swap it in; the hash of the one now in force.

        Raises ConfigError, and keeps the old one, if the new one cannot be used.
        """
        try:
            config = self._read_again() if self._read_again is not None else self.config
            self._adopt(config)
        except ConfigError as err:
            self.metrics.reloaded(False)
            log_event(logging.ERROR, "reload refused", problems=err.problems)
            raise
        self._log.reopen()
        self.metrics.reloaded(True, _hash(config))
        log_event(logging.INFO, "reloaded", hash=self.metrics.config_hash)
        return self.metrics.config_hash

    def _adopt(self, config: Config) -> None:
        old = self.config
        fixed = [name for name in ("listen", "admin", "emulate") if _differs(config, old, name)]
        if (config.tls is None) != (old.tls is None):
            fixed.append("tls")
        if fixed:
            raise ConfigError([f"{name}: cannot change without a restart" for name in fixed])
        # Everything that can fail comes first; then one swap after the other, none of which can.
        policy = self._policy
        if config.routing != old.routing:
            policy = make_policy(config.routing.policy, config.routing.options)
        upstream = _Upstream(config)
        if self._tls is not None and config.tls is not None:
            try:
                listening_context(config.tls)
                self._tls.load_cert_chain(config.tls.cert, config.tls.key)
            except FileProblem as err:
                raise ConfigError([f"tls.{err.field}: {err}"]) from None
        log = self._log
        if config.access_log != old.access_log:
            try:
                log = _access_log(config)
            except OSError as err:
                raise ConfigError([f"access_log.path: {err.strerror}"]) from None
        self.config = config
        self._policy = policy
        self._upstream = upstream
        if log is not self._log:
            self._old_logs.append(self._log)
            self._log.close(timeout_s=0)
            self._log = self._dispatcher.log = log
        self._front.limits = config.limits
        self._front.timeouts = config.timeouts
        self._front.max_clients = self._max_clients(config)
        self._front.allow_half_close = config.allow_half_close
        self._front.via = config.via.encode("ascii")
        self._front.plans = Plans()  # those of before belong to the old rules
        self._fleet.rules = config.health
        self._dispatcher.adopt(config, policy, upstream.authorization)
        self._diff_fleet(old, config)

    def _diff_fleet(self, old: Config, config: Config) -> None:
        """Keep the replicas that stay, with all that is known of them."""
        fleet = self._fleet
        wanted = {r.id: r for r in (*config.replicas, *self._emulated_replicas)}
        rebuilt = config.upstream != old.upstream
        for replica_id, replica in list(fleet.replicas.items()):
            new = wanted.get(replica_id)
            if new is None or new.url != replica.config.url or rebuilt:
                self._prober.unwatch(replica)
                successor = self._make_replica(new) if new is not None else None
                fleet.remove(replica_id, successor)
                if successor is None:
                    self.metrics.forget_replica(replica_id)
                else:
                    self._prober.watch(successor)
            else:
                replica.adopt(new, config.health)
                replica.pool.adopt(config.limits, config.timeouts)
        for replica_id, new in wanted.items():
            if replica_id not in fleet.replicas:
                replica = self._make_replica(new)
                fleet.add(replica)
                self._prober.watch(replica)
        self._prober.adopt(config, self._upstream.token, self._upstream.tls)
        fleet.rebuild()

    # -- what the parts report ----------------------------------------------------------------

    def _fleet_changed(self, ids: frozenset[str]) -> None:
        try:
            self._policy.on_fleet_change(ids)
        except Exception as err:
            self.metrics.policy_errors += 1
            self._failed(err)

    def _fleet_event(self, what: str, replica: Replica) -> None:
        if what == "ejected":
            self.metrics.ejections(replica.id)
        log_event(logging.WARNING, f"replica {what}", key=replica.id, replica=replica.id)

    def _unresolved(self, host: str, why: str) -> None:
        log_event(logging.WARNING, "a name does not resolve", key=host, host=host, error=why)

    def _failed(self, err: BaseException) -> None:
        log_event(logging.ERROR, "a part of the router failed", error=repr(err))

    def _dropped_lines(self) -> int:
        """Of the log and of those that a reload put away: their last lines may still be waiting."""
        return sum(log.dropped for log in (*self._old_logs, self._log))

    def _gauges(self) -> Gauges:
        fleet = self._fleet

        def by_state() -> dict[str, float]:
            now = monotonic()
            counts = dict.fromkeys(("ready", "down", "ejected", "half_open", "draining"), 0.0)
            for replica in (*fleet.replicas.values(), *fleet.leaving):
                counts[replica.state(now)] += 1
            return counts

        def connections() -> dict[str, float]:
            census = self.census()
            return {name: census[f"replica_{name}"] for name in ("idle", "busy", "connecting")}

        return Gauges(
            replicas_by_state=by_state,
            inflight_by_replica=lambda: {r.id: r.inflight for r in fleet.replicas.values()},
            replica_connections_by_state=connections,
            client_connections=lambda: len(self._front.clients),
            exchanges=lambda: len(self._dispatcher.exchanges),
            held_body_bytes=lambda: self._front.held_bytes,
            access_log_dropped=self._dropped_lines,
            open_file_limit=lambda: self._open_files,
            loop_lag_s=lambda: self._sweeper.lag_s,
            ready=lambda: float(self.ready()[0]),
            draining=lambda: float(self._draining),
        )


class _Upstream:
    """How replicas are spoken to, ready for use. Raises ConfigError."""

    def __init__(self, config: Config) -> None:
        try:
            self.token = upstream_token(config.upstream)
            self.tls = None
            if any(r.url.lower().startswith("https") for r in config.replicas):
                self.tls = replica_context(config.upstream)
        except FileProblem as err:
            raise ConfigError([f"upstream.{err.field}: {err}"]) from None
        self.server_name = config.upstream.server_name
        self.authorization = f"authorization: Bearer {self.token}".encode() if self.token else None


def _access_log(config: Config) -> AccessLog:
    log = config.access_log
    return AccessLog(log.path, log.flush_s, log.queue)


def _hash(config: Config) -> str:
    """Twelve hex digits that change with the configuration."""
    return hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:12]


def _differs(a: Config, b: Config, name: str) -> bool:
    return bool(getattr(a, name) != getattr(b, name))


# -- the process --------------------------------------------------------------------------------


def serve(config: Config, read_again: Callable[[], Config]) -> int:
    """Run a router until it is told to stop; the exit status.

    SIGTERM and SIGINT drain, a second one stops at once; SIGHUP reloads. Raises OSError when an
    address is not to be had.
    """
    import uvloop

    handler = events.install()
    try:
        return int(uvloop.run(_serve(config, read_again)))
    finally:
        events.uninstall(handler)


async def _serve(config: Config, read_again: Callable[[], Config]) -> int:
    loop = asyncio.get_running_loop()
    app = App(config, read_again)
    await app.start()

    def terminate() -> None:
        if app._draining:
            app.drained.set()
        else:
            app.drain()

    async def reload() -> None:
        try:
            await app.reload()
        except ConfigError:
            pass  # said in the log; the old configuration stays

    tasks: set[asyncio.Task[None]] = set()

    def hang_up() -> None:
        task = asyncio.ensure_future(reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, terminate)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    # What exists now stays; the data plane makes no reference cycles that need finding often.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    await app.drained.wait()
    await app.stop()
    return 0
