"""The lifecycle of one router: start, reload, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from router.app import (
    families,
    queued,
    reload,
    report,
    usage,
)
from router.app.admin_answers import AdminAnswers
from router.app.discovered import Discovered
from router.app.drain import Drain
from router.app.emulated_fleet import EmulatedFleet, FleetError, replicas_at
from router.app.file_watch import FileWatch, files_of
from router.app.listeners import ADMIN, DATA, PROBES, Listener, Listeners
from router.app.members import Members
from router.app.parts import Parts, admin_names, admin_token, config_hash, failed
from router.app.reload import Files
from router.app.restart import fleet_state
from router.app.restart.messages import FleetState
from router.app.servers import Servers
from router.config.in_force import InForce
from router.config.model import Config, Replica as ReplicaConfig
from router.core.build import VERSION, build_kind
from router.core.clock import monotonic
from router.core.errors import ConfigError, Reason
from router.core.limits import raise_open_files
from router.dispatch.ending import shut
from router.observe.admin.authority import Authority
from router.observe.admin.listener import Admin
from router.observe.events import log_event, set_level
from router.observe.families import hedge_families
from router.observe.families.collector import Collector
from router.observe.families.family import Source
from router.observe.metrics import Metrics

if TYPE_CHECKING:
    from router.app.workers.siblings import Siblings

# Maximum number of turns of the event loop that a stop waits until aborted connections have ended.
_SETTLE_TURNS = 1000
_NAMED = 8  # Maximum number of replicas that are down and that one log event names.


class App:
    """One router. Call `start` first, or `prepare` and `listen`, and `stop` once at the end."""

    parts: Parts  # The parts of the router, set by `prepare`.
    members: Members  # Changes of the fleet's members, set by `prepare`.
    collector: Collector  # Its metrics, set by `prepare`.
    answers: AdminAnswers  # What the admin port answers, set by `prepare`.
    discovered: Discovered  # The replicas of discovery, set by `prepare`.

    def __init__(
        self,
        config: Config,
        read_again: Callable[[], Config] | None = None,
        *,
        path: str | None = None,
        seed: int | None = None,
        inherited: Iterable[Listener] = (),
        siblings: Siblings | None = None,
    ) -> None:
        """`read_again`: reads the configuration for a reload. `path`: its file, if it has one.

        `inherited`: listening sockets from systemd, or from the process that this process replaces.
        `siblings`: the other workers on the same sockets; None: this process serves alone.
        """
        self.siblings = siblings
        self.in_force = InForce(config)
        self.read_again = read_again
        self.metrics = Metrics()
        self.draining = Drain()
        self._is_stopped = False
        self._reloading = asyncio.Lock()  # Held by a reload from its reading to its end.
        self.port = 0
        self.admin_port = 0
        self.probes_port = 0  # The port of `admin.probes_listen`; 0: there is none.
        self._rng = Random(seed)
        self._path = path
        self.file_watch = FileWatch(self._files, self.reload, self._is_stale)
        self.listeners = Listeners(inherited)
        self._emulated: EmulatedFleet | None = None
        self._emulated_replicas: tuple[ReplicaConfig, ...] = ()
        self._is_ready_logged = False  # Whether the log event "ready" was written.
        self._was_ready = False  # Whether a replica has been up.

    @property
    def config(self) -> Config:
        return self.in_force.config

    # -- start --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Calls `prepare` and `listen`. Raises OSError or ConfigError."""
        await self.prepare()
        await self.listen()

    async def prepare(self, state: FleetState | None = None) -> None:
        """Builds the parts, probes the replicas once, and opens the listening sockets.

        `state`: the state of the fleet in the process that this process replaces. Raises OSError
        or ConfigError.
        """
        config = self.config
        if config.watch:
            self.file_watch.mark()
        named = {} if self._path is None else {"config": self._path}
        log_event(logging.INFO, "starting", version=VERSION, build=build_kind(), **named)
        self.parts = parts = Parts(
            self.in_force, self.metrics, self._rng, raise_open_files(), self.siblings
        )
        parts.dispatcher.unready = self.unready
        is_first = state is None if self.siblings is None else self.siblings.is_first
        self._was_ready = not is_first  # Processes before this one have served.
        self.metrics.reloads.config_hash = config_hash(config)
        self.members = Members(parts)
        self.discovered = Discovered(parts)
        authority = Authority(admin_token(config), admin_names(config))
        self.collector = self._collector(parts)
        self.answers = AdminAnswers(self)
        if self.siblings is not None:
            self.collector.combine = self.answers.metrics
        admin = Admin(self.answers, self.collector, authority)
        self.servers = Servers(self.listeners, admin, authority)
        try:
            if self.siblings is not None:
                self._emulated_replicas = self.siblings.emulated
            elif config.emulate.count:
                await self._emulate(config)
            parts.fleet.add_all(
                [parts.make_replica(replica, config, parts.upstream) for replica in self._listed()]
            )
            if state is not None:
                fleet_state.adopt_members(parts, state, self._listed(), is_watching=False)
            await self.discovered.start()
            if state is not None:
                self.discovered.continues(state)
            await parts.start_watching(waits=state is not None)
            self.discovered.begin()
            self.servers.open(config)
            parts.own.opened(self.listeners)
            for replica in self._listed():  # A listener may have a port that systemd chose.
                parts.upstream.check_not_own(replica)
        except BaseException:
            await self.stop()
            raise

    def adopt_fleet(self, state: FleetState) -> None:
        """Applies the changes of the fleet's members that happened since `prepare`."""
        fleet_state.adopt_members(self.parts, state, self._listed(), is_watching=True)
        self.discovered.continues(state)

    async def listen(self) -> None:
        """Begins to accept connections. Call `prepare` first."""
        parts, listeners = self.parts, self.listeners
        try:
            balance = None if self.siblings is None else self.siblings.balance
            await self.servers.start(parts.front, balance)
        except BaseException:
            await self.stop()
            raise
        self.port = listeners.port(DATA)
        self.admin_port = listeners.port(ADMIN)
        self.probes_port = listeners.port(PROBES)
        for addon in parts.addons.values():
            await addon.listening()
        self.file_watch.switch(self.config.watch)
        self._log_ready(at_start=True)
        if not self._is_ready_logged:
            # `_log_ready` is called in a later turn of the event loop: when the fleet calls
            # `on_up`, the replica does not get requests yet.
            parts.on_up = partial(parts.loop.call_soon, self._log_ready)

    def _listed(self) -> list[ReplicaConfig]:
        return [*self.config.replicas, *self._emulated_replicas]

    def _collector(self, parts: Parts) -> Collector:
        state = families.Lifecycle(lambda: self.unready() is None, lambda: self.draining.has_begun)
        sources: list[Source[Any]] = [
            Source(hedge_families.FAMILIES, lambda: parts.hedge_counts),
            Source(families.FLEET, lambda: parts),
            Source(families.SPOT, lambda: parts.reclaims),
            Source(families.DISCOVERY, lambda: self.discovered),
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
        if self._is_ready_logged or not (at_start or parts.fleet.serving.ready):
            return
        self._is_ready_logged = bool(parts.fleet.serving.ready)
        self._was_ready |= self._is_ready_logged
        away = [r for r in parts.fleet.replicas.values() if not r.health.up]
        down = "; ".join(f"{r.id}: {r.why(monotonic())}" for r in away[:_NAMED])
        said: dict[str, Any] = {"down": down} if down else {}
        log_event(
            logging.INFO if self._is_ready_logged else logging.WARNING,
            "ready" if self._is_ready_logged else "listening, and no replica is up",
            pid=os.getpid(),
            listen=self.listeners.address(DATA),
            admin=self.listeners.address(ADMIN),
            replicas=len(parts.fleet.replicas),
            up=len(parts.fleet.serving.ready),
            policy=config.routing.policy,
            classes=report.classes(parts),
            open_files=parts.open_files,
            **said,
        )

    async def _emulate(self, config: Config) -> None:
        self._emulated = EmulatedFleet(config.emulate.count, config.emulate.model)
        try:
            urls = await self._emulated.start()
        except FleetError as err:
            raise OSError(str(err)) from None
        self._emulated_replicas = replicas_at(urls, config.region)

    # -- stop ---------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops now: ends requests in progress with an error, and closes everything."""
        self._is_stopped = True
        await self.draining.cancel()
        await self.file_watch.stop()
        self.servers.close_data()
        # First of all, because an admin request could add a replica, which would be probed.
        await self.servers.stop_admin()
        parts = self.parts
        self.discovered.stop()
        await parts.stop_watching()
        parts.context.closing = True
        for exchange in list(parts.dispatcher.exchanges):
            shut(exchange)
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
        await self.servers.stop()
        for addon in parts.addons.values():
            try:
                await addon.close()
            except Exception as err:
                failed(err)
        parts.sweeper.close()
        parts.fleet_log.close()
        parts.log.close()
        if self._emulated is not None:
            await self._emulated.stop()
        if self.siblings is not None:
            self.siblings.close()
        self.draining.done.set()

    def _unsettled(self) -> int:
        census = self.census()
        return sum(census.values()) - sum(census[name] for name in ("probes", "polls", "parties"))

    # -- drain --------------------------------------------------------------------------------

    def drain(self, *, by_hand: bool = False) -> None:
        """Lets the requests in progress finish, then sets `draining.done`. A second call does
        nothing.

        `by_hand`: a person has stopped the router (SIGINT). Then, if no client is connected, the
        router does not wait until a load balancer has noticed the drain.
        """
        self.draining.begin(self.parts, self.servers, by_hand=by_hand)

    # -- restart (Replaceable) ----------------------------------------------------------------

    @property
    def is_draining(self) -> bool:
        return self.draining.has_begun

    async def state(self) -> tuple[FleetState, tuple[str, ...]]:
        return fleet_state.state_of(self.parts), tuple(self.parts.fleet.serving.ready_ids)

    def freeze(self, is_frozen: bool) -> None:
        self.members.is_handed_over = is_frozen

    def hand_over(self, left: Collection[str]) -> None:
        self.draining.hand_over(self.parts, self.servers, left)

    # -- reports ------------------------------------------------------------------------------

    def ready(self) -> tuple[bool, str]:
        why = self.unready()
        if why is not None:
            return False, "draining" if why is Reason.DRAINING else "no replica is up"
        has_replica = self.draining.is_replaced or self.parts.fleet.serving.ready
        return True, "ready" if has_replica else "ready, and no replica is up"

    def unready(self) -> Reason | None:
        """Return why load balancers should not use this router; None: they should use it."""
        if self.draining.is_replaced:
            return None  # The other process accepts requests at the same addresses.
        if self.draining.has_begun:
            return Reason.DRAINING
        rule = self.config.ready
        is_ready = (
            rule == "always"
            or bool(self.parts.fleet.serving.ready)
            or (rule == "after_first_replica" and self._was_ready)
        )
        return None if is_ready else Reason.NO_REPLICA

    def replicas(self) -> list[dict[str, Any]]:
        return report.replicas(self.parts)

    def hedging(self) -> dict[str, Any]:
        return report.hedging(self.parts)

    def queue(self) -> dict[str, Any]:
        errors = queued.ttft_estimates(self.parts.context.estimates, self.metrics)
        return {**queued.described(self.parts.queue), "ttft_estimates": errors}

    async def usage(self, first: int, last: int) -> dict[str, Any]:
        return await usage.described(self.parts, first, last)

    async def usage_csv(self, first: int, last: int) -> bytes:
        return await usage.csv_of(self.parts, first, last)

    def census(self) -> dict[str, int]:
        """Return the numbers of resources in use now. Every number is 0 after `stop`."""
        return report.census(self.parts)

    # -- reload -------------------------------------------------------------------------------

    def _files(self) -> list[str]:
        return [*([] if self._path is None else [self._path]), *files_of(self.config)]

    def _is_stale(self) -> bool:
        """Whether the configuration file no longer has the configuration in force."""
        try:
            return self.read_again is not None and self.read_again() != self.config
        except ConfigError:
            return True

    async def reload(self) -> str:
        """Reads the configuration again and applies it. Returns the hash of the new configuration.

        If the new configuration is invalid, raises ConfigError, and the old configuration stays in
        force. Logs every error. In any case, the access log is opened again (log rotation).
        """
        try:
            return await self._reload()
        except ConfigError as err:
            self.metrics.reloads.count(False)
            log_event(logging.ERROR, "reload refused", key=None, problems=err.problems)
            raise
        except Exception as err:
            self.metrics.reloads.count(False)
            log_event(logging.ERROR, "reload failed", key=None, problem=repr(err))
            raise
        finally:
            self.parts.log.reopen()  # Log rotation must not depend on a valid configuration.

    def reopen_log(self) -> None:
        """Opens the access log again (log rotation), and changes nothing else."""
        self.parts.log.reopen()
        log_event(logging.INFO, "access log opened again", key=None)

    async def _reload(self) -> str:
        read_again = self.read_again or (lambda: self.config)
        async with self._reloading:
            files = await asyncio.to_thread(reload.read, read_again, self.parts.keys)
            if self._is_stopped:
                raise ConfigError(["the router has stopped"])
            await self._apply(files)
        return self.metrics.reloads.config_hash

    async def _apply(self, files: Files) -> None:
        config = files.config
        self.servers.check(config)
        prepared = reload.prepare(self.parts, files, self._emulated_replicas)
        changed, log_level = reload.differences(self.parts, prepared), self.config.log_level
        reload.commit(self.parts, prepared, self.servers)
        self.discovered.reloaded()
        for name, addon in prepared.addons.items():
            try:
                await addon.start()
            except ConfigError as err:  # The new configuration is in force: it is not refused.
                problems = err.problems
                log_event(
                    logging.ERROR,
                    "an addon has not started",
                    key=None,
                    addon=name,
                    problems=problems,
                )
        if config.log_level != log_level:
            set_level(config.log_level)
        self.file_watch.switch(config.watch and not self.draining.has_begun)
        for addon in self.parts.addons.values():
            await addon.reloaded()
        self.metrics.reloads.count(True, config_hash(config))
        hash_ = self.metrics.reloads.config_hash
        log_event(logging.INFO, "reloaded", key=None, hash=hash_, changed=changed)
