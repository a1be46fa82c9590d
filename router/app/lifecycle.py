"""The lifecycle of one router: start, reload, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from random import Random
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
from router.app.emulated_fleet import EmulatedFleet, FleetError
from router.app.file_watch import FileWatch, files_of
from router.app.listeners import ADMIN, DATA, PROBES, Listener, Listeners
from router.app.members import Members
from router.app.parts import Parts, config_hash, failed
from router.app.reload import Files
from router.app.restart import fleet_state
from router.app.restart.messages import FleetState
from router.app.servers import Servers
from router.config.model import Config, Replica as ReplicaConfig
from router.core.build import VERSION, build_kind
from router.core.clock import monotonic
from router.core.errors import ConfigError, Reason
from router.core.limits import raise_open_files
from router.dispatch.ending import shut
from router.observe.admin.listener import Admin
from router.observe.events import log_event, set_level
from router.observe.families import hedge_families
from router.observe.families.collector import Collector
from router.observe.families.family import Source
from router.observe.metrics import Metrics
from router.wire.client import QUIET_S
from router.wire.sweep import NEVER

# Maximum number of turns of the event loop that a stop waits until aborted connections have ended.
_SETTLE_TURNS = 1000
# Seconds in which a replaced process still answers requests on connections to its admin port.
_ADMIN_S = 1.0
_LOOK_S = 0.05  # seconds between two checks whether a drain is over
_NAMED = 8  # Maximum number of replicas that are down and that one log event names.


class App:
    """One router. Call `start` first, or `prepare` and `listen`, and `stop` once at the end."""

    parts: Parts  # The parts of the router, set by `prepare`.
    members: Members  # Changes of the fleet's members, set by `prepare`.
    discovered: Discovered  # The replicas of discovery, set by `prepare`.

    def __init__(
        self,
        config: Config,
        read_again: Callable[[], Config] | None = None,
        *,
        path: str | None = None,
        seed: int | None = None,
        inherited: Iterable[Listener] = (),
    ) -> None:
        """`read_again`: reads the configuration for a reload. `path`: its file, if it has one.

        `inherited`: listening sockets from systemd, or from the process that this process replaces.
        """
        self.config = config
        self.read_again = read_again
        self.metrics = Metrics()
        self.drained = asyncio.Event()  # Set when a drain has finished.
        self.draining = False
        self._is_stopped = False
        self._reloading = asyncio.Lock()  # Held by a reload from its reading to its end.
        self.is_replaced = False  # Another process serves instead of this one.
        self.port = 0
        self.admin_port = 0
        self.probes_port = 0  # The port of `admin.probes_listen`; 0: there is none.
        self._rng = Random(seed)
        self._path = path
        self.file_watch = FileWatch(self._files, self.reload, self._is_stale)
        self._drain_task: asyncio.Task[None] | None = None
        self.listeners = Listeners(inherited)
        self._emulated: EmulatedFleet | None = None
        self._emulated_replicas: tuple[ReplicaConfig, ...] = ()
        self._open_files = 0
        self._is_ready_logged = False  # Whether the log event "ready" was written.
        self._was_ready = False  # Whether a replica has been up.
        # The drain does not wait for a load balancer, because no client is connected.
        self._is_alone = False

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
        self._open_files = raise_open_files()
        self.parts = parts = Parts(config, self.metrics, self._rng, self._open_files)
        parts.dispatcher.unready = self.unready
        self._was_ready = state is not None  # The process before this one has served.
        self.metrics.reloads.config_hash = config_hash(config)
        self.members = Members(parts)
        self.discovered = Discovered(parts)
        admin = Admin(self, self._collector(parts), parts.authority)
        self.servers = Servers(self.listeners, admin)
        try:
            if config.emulate.count:
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
            parts.own.adopt(self.listeners)
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
            await self.servers.start(parts.front)
        except BaseException:
            await self.stop()
            raise
        self.port = listeners.port(DATA)
        self.admin_port = listeners.port(ADMIN)
        self.probes_port = listeners.port(PROBES)
        for addon in parts.addons.values():
            await addon.listening()
        self.file_watch.adopt(self.config.watch)
        self._log_ready(at_start=True)
        if not self._is_ready_logged:
            # `_log_ready` is called in a later turn of the event loop: when the fleet calls
            # `on_up`, the replica does not get requests yet.
            parts.on_up = partial(parts.loop.call_soon, self._log_ready)

    def _listed(self) -> list[ReplicaConfig]:
        return [*self.config.replicas, *self._emulated_replicas]

    def _collector(self, parts: Parts) -> Collector:
        state = families.Lifecycle(lambda: self.unready() is None, lambda: self.draining)
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

    # -- stop ---------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops now: ends requests in progress with an error, and closes everything."""
        self.draining = self._is_stopped = True
        task, self._drain_task = self._drain_task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
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
            wait_s = 0.0 if self._is_alone else self.config.drain.lame_duck_s
            log_event(logging.INFO, "draining", **self._under_way(), lame_duck_s=wait_s)
            self._drain_task = asyncio.ensure_future(self._drained_after(self._drain))

    def hand_over(self, left: Collection[str]) -> None:
        """Lets the requests in progress finish, because another process serves now.

        `left`: the names of the listeners with addresses that the other process does not use. Does
        nothing if the router drains already.
        """
        if not self.draining:
            self.draining = self.is_replaced = True
            log_event(logging.INFO, "draining", **self._under_way())
            leave = partial(self._leave, left)
            self._drain_task = asyncio.ensure_future(self._drained_after(leave))

    async def _drained_after(self, work: Callable[[], Awaitable[None]]) -> None:
        """Sets `drained` after the work, even if it fails: the process must end."""
        try:
            await work()
        except Exception as err:
            log_event(logging.ERROR, "drain failed", key=None, error=repr(err))
        log_event(logging.INFO, "drained", **self._under_way())
        self.drained.set()

    async def _leave(self, left: Collection[str]) -> None:
        self.servers.close_admin()
        if DATA in left:
            await self._lame_duck()
        else:
            self.servers.close_data()
        both = self._finish(NEVER), self._end_admin()
        for error in await asyncio.gather(*both, return_exceptions=True):
            if error is not None:
                raise error

    async def _drain(self) -> None:
        if not self._is_alone:
            await self._lame_duck()
        await self._finish(QUIET_S)

    async def _lame_duck(self) -> None:
        """Accepts connections for a time, so that a load balancer can read /readyz."""
        self.parts.front.last_answers = True
        await asyncio.sleep(self.config.drain.lame_duck_s)

    async def _end_admin(self) -> None:
        """Closes the connections to the admin port, so that probes reach the other process."""
        await asyncio.sleep(_ADMIN_S)
        await self.servers.stop_admin()

    async def _finish(self, quiet_s: float) -> None:
        """Accepts no more connections, and waits for the requests in progress.

        A connection that waits for a request is closed after `quiet_s` seconds without one, or
        after the usual time limits. So a request that is just arriving is still answered.
        """
        parts = self.parts
        front, unreleased = parts.front, [*parts.addons.values()]
        for addon in unreleased:
            addon.rest()
        self.servers.close_data()
        front.draining = front.last_answers = True
        deadline = monotonic() + self.config.drain.grace_s
        is_over = False
        while not is_over:
            await asyncio.sleep(_LOOK_S)  # Connections that were just accepted are counted then.
            now = monotonic()
            for client in list(front.clients):
                client.shut(now - quiet_s)
            if self.is_replaced:
                unreleased = [addon for addon in unreleased if not await addon.release()]
            is_over = now >= deadline or not (front.clients or parts.dispatcher.exchanges)

    def _under_way(self) -> dict[str, Any]:
        parts = self.parts
        return {"requests": len(parts.dispatcher.exchanges), "clients": len(parts.front.clients)}

    # -- reports (AdminActions) ---------------------------------------------------------------

    def ready(self) -> tuple[bool, str]:
        why = self.unready()
        if why is not None:
            return False, "draining" if why is Reason.DRAINING else "no replica is up"
        has_replica = self.is_replaced or self.parts.fleet.serving.ready
        return True, "ready" if has_replica else "ready, and no replica is up"

    def unready(self) -> Reason | None:
        """Return why load balancers should not use this router; None: they should use it."""
        if self.is_replaced:
            return None  # The other process accepts requests at the same addresses.
        if self.draining:
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
        errors = estimates.described(self.parts.context.estimates, self.metrics)
        return {**queued.described(self.parts.queue), "ttft_estimates": errors}

    async def usage(self, first: int, last: int) -> dict[str, Any]:
        return await usage.described(self.parts, first, last)

    async def usage_csv(self, first: int, last: int) -> bytes:
        return await usage.csv_of(self.parts, first, last)

    def census(self) -> dict[str, int]:
        """Return the numbers of resources in use now. Every number is 0 after `stop`."""
        return report.census(self.parts)

    # -- reload (AdminActions) ----------------------------------------------------------------

    def _files(self) -> list[str]:
        """Return the files that `watch` watches."""
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
        changed = reload.differences(self.parts, prepared)
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
        if config.log_level != self.config.log_level:
            set_level(config.log_level)
        self.config = config
        self.file_watch.adopt(config.watch and not self.draining)
        for addon in self.parts.addons.values():
            await addon.reloaded()
        self.metrics.reloads.count(True, config_hash(config))
        hash_ = self.metrics.reloads.config_hash
        log_event(logging.INFO, "reloaded", key=None, hash=hash_, changed=changed)
