"""Handles the KV events of a whole fleet: finds each replica's publishers and subscribes to them.

One task per replica queries its HTTP endpoints (or uses the configuration) repeatedly: engines
start late, move to another port, or begin to publish later. The watcher uses its own connections,
and never delays a request. Received events go into one `ExactIndex`, keyed by the replica. If the
router chooses the data-parallel rank, the events of each rank are keyed by the replica of the rank.

`Addresses`: resolves host names in the ZMQ endpoints of one replica like the data plane does.

libzmq resolves a host name itself at each connect. It does not keep the last answer for a DNS
outage, and all sockets share its one I/O thread, so a slow name server would delay every
subscriber. Therefore ZMQ gets addresses only.

Must never: query a name server for a host that the replica's own resolver knows.

`configured`: reads the KV event publishers of a replica from the configuration. The functions are
pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from router.addons.kv_events.extra import load
from router.addons.kv_events.index import ExactIndex
from router.addons.kv_events.reader import Pump, Subscriber
from router.addons.kv_events.stream import Counters
from router.config.address import join_host_port
from router.config.in_force import InForce
from router.config.model import KvEvents
from router.fleet.engines.common.publishers import Source, connectable
from router.fleet.engines.common.registry import publishers_of
from router.fleet.monitor.ask import own_fields, tls_of
from router.fleet.monitor.resolve import Resolve, Resolver, remember
from router.fleet.replica import Replica
from router.wire.pool import Address

if TYPE_CHECKING:
    import aiohttp


_TCP = "tcp://"


class Addresses:
    """Resolves the host names in the KV event sources of one replica."""

    def __init__(self, own: Address) -> None:
        """`own`: the address to which the router sends the replica's requests."""
        self._own: dict[str, Resolve] = {} if own.resolve is None else {own.host: own.resolve}
        self._others: dict[str, Resolve] = {}  # resolvers of hosts that occur only in ZMQ endpoints

    def keep(self, sources: Iterable[Source]) -> None:
        """Drop the resolvers of hosts that these sources do not name."""
        hosts = {_split(e)[0] for source in sources for e in (source.endpoint, source.replay) if e}
        self._others = {host: its for host, its in self._others.items() if host in hosts}

    async def resolved(self, source: Source, used: Source | None, is_connected: bool) -> Source:
        """Return the source with addresses in place of host names. Raises OSError.

        `used`: the source that a subscriber uses now. While the subscriber is connected, it keeps
        its address, if the host name still resolves to it. Otherwise the next address of the host
        name is tried.
        """
        before = source if used is None else used
        endpoint = await self._resolve(source.endpoint, before.endpoint, is_connected)
        replay = source.replay
        if replay is not None:
            replay = await self._resolve(replay, before.replay or "", is_connected)
        return msgspec.structs.replace(source, endpoint=endpoint, replay=replay)

    async def _resolve(self, endpoint: str, used: str, is_connected: bool) -> str:
        host, port = _split(endpoint)
        if not host:
            return endpoint
        resolve = self._own.get(host) or self._others.get(host)
        if resolve is None:
            resolve = self._others[host] = Resolver(host, lambda host, why: None)
        found = await resolve()
        before = _split(used)[0]
        if before not in found:
            address = found[0]
        elif is_connected:
            address = before
        else:
            address = found[(found.index(before) + 1) % len(found)]
        return _TCP + join_host_port(address, port)


def _split(endpoint: str) -> tuple[str, int]:
    """Return host and port of a TCP endpoint created by `sources`; an empty host for `ipc://`."""
    if not endpoint.startswith(_TCP):
        return "", 0
    host, _, port = endpoint.removeprefix(_TCP).rpartition(":")
    return host.strip("[]"), int(port)


def configured(settings: KvEvents, host: str, ranks: range = range(1)) -> list[Source]:
    """Return the configured sources of KV events, which override the replica's answers.

    `host`: the replica's host. `ranks`: the numbers of its data-parallel ranks. The settings are
    those of rank 0; rank r publishes on port + r, as in vLLM and SGLang.
    """
    found: list[Source] = []
    for rank in ranks:
        endpoint = connectable(settings.endpoint, host, rank)
        if endpoint is not None:
            replay = settings.replay and connectable(settings.replay, host, rank)
            found.append(Source(endpoint, replay or None, settings.topic, rank))
    return found


# maximum bytes of an answer; the answers of some engines contain every setting
_ANSWER_BYTES: Final = 4 * 1024 * 1024
_SETTLED_S: Final = 30.0  # seconds between queries while all publishers are connected
_UNSETTLED_S: Final = 5.0  # seconds between queries while a publisher is not connected


class KvWatcher:
    """Subscribers of all replicas. Created only if `prefix.exact` is set."""

    def __init__(
        self,
        in_force: InForce,
        rng: Random,
        on_error: Callable[[BaseException], None],
        *,
        settled_s: float = _SETTLED_S,
        unsettled_s: float = _UNSETTLED_S,
        replay_timeout_s: float = 2.0,
    ) -> None:
        """Raises ConfigError if a package of the extra kv-events is missing."""
        self._zmq = load("zmq", "pyzmq", "prefix.exact")
        self.index = ExactIndex(in_force.config.prefix.entries)
        self.counters = Counters()
        self._in_force = in_force
        self._rng = rng
        self._on_error = on_error
        self._settled_s = settled_s
        self._unsettled_s = unsettled_s
        self._replay_timeout_s = replay_timeout_s
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        # The subscribers by the source as the replica or the configuration names it;
        # `Subscriber.source` is the same source with addresses in place of host names.
        self._subscribers: dict[Replica, dict[Source, Subscriber]] = {}
        self._addresses: dict[Replica, Addresses] = {}
        self._names: dict[str, Resolve] = {}  # host -> the data plane's resolver
        self._context: Any = None
        self._pump: Pump | None = None
        self._session: aiohttp.ClientSession | None = None

    @property
    def _timeout_s(self) -> float:
        return self._in_force.config.polling.timeout_s

    def start(self) -> None:
        """Open the session and the ZMQ context. Needs a running event loop."""
        import aiohttp

        from router.fleet.monitor.names import connector

        loop = asyncio.get_running_loop()
        self._context = self._zmq.Context()
        self._pump = Pump(loop, self.index, self._on_error)
        self._session = aiohttp.ClientSession(
            connector=connector(self._names),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def watch(self, replica: Replica) -> None:
        """Subscribe to a replica's publishers, as soon as they are known."""
        self._addresses[replica] = Addresses(replica.pool.address)
        task = asyncio.ensure_future(self._watch(replica))
        self._tasks[replica] = task

    def watches(self, replica: Replica) -> bool:
        return replica in self._tasks

    def unwatch(self, replica: Replica) -> None:
        """Unsubscribe from a replica's publishers, and drop the replica's blocks from the index."""
        task = self._tasks.pop(replica, None)
        if task is not None:
            task.cancel()
        self._addresses.pop(replica, None)
        self._listen(replica, {})

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for replica in list(self._tasks):
            self.unwatch(replica)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._pump is not None:
            self._pump.stop()
        if self._session is not None:
            await self._session.close()
        if self._context is not None:
            # This ends ZMQ's thread; with linger=0 it does not wait for sockets that were not
            # closed.
            self._context.destroy(linger=0)

    @property
    def running(self) -> int:
        """Return the number of tasks and open sockets: 0 after `stop`."""
        return len(self._tasks) + self.subscribers

    @property
    def subscribers(self) -> int:
        return sum(len(found) for found in self._subscribers.values())

    @property
    def connected(self) -> int:
        """Return the number of connected publishers."""
        return sum(
            subscriber.is_connected
            for found in self._subscribers.values()
            for subscriber in found.values()
        )

    # -- one replica --------------------------------------------------------------------------

    async def _watch(self, replica: Replica) -> None:
        while True:
            is_settled = False
            try:
                sources = await self._sources(replica)
                if sources is not None:
                    self._listen(replica, await self._resolved(replica, sources))
                    found = self._subscribers.get(replica, {})
                    is_settled = len(found) == len(sources) and all(
                        subscriber.is_connected for subscriber in found.values()
                    )
            except Exception as err:
                self._on_error(err)
            pause_s = self._settled_s if is_settled else self._unsettled_s
            await asyncio.sleep(pause_s * self._rng.uniform(0.8, 1.2))

    async def _sources(self, replica: Replica) -> list[Source] | None:
        """Return the publishers of a replica; `None`: no answer, so its known publishers are
        kept."""
        host = replica.endpoint.address.host
        if replica.config.kv_events is not None:
            first = replica.first_rank
            ranks = range(first, first + len(replica.ranks))
            return configured(replica.config.kv_events, host, ranks)
        answered = False
        for publisher in publishers_of(replica.descriptor):
            raw = await self._get(replica, publisher.path)
            if raw is not None:
                answered = True
                sources = publisher.read(raw, host)
                if sources:
                    return sources
        return [] if answered else None

    async def _resolved(self, replica: Replica, sources: list[Source]) -> dict[Source, Source]:
        """Return the sources with addresses in place of host names.

        If a host name has no address, the subscriber of its source stays as it is. A source without
        a subscriber is left out.
        """
        found = self._subscribers.get(replica, {})
        addresses = self._addresses[replica]
        addresses.keep(sources)
        resolved: dict[Source, Source] = {}
        for source in sources:
            subscriber = found.get(source)
            used = None if subscriber is None else subscriber.source
            is_connected = subscriber is not None and subscriber.is_connected
            try:
                async with asyncio.timeout(self._timeout_s):
                    resolved[source] = await addresses.resolved(source, used, is_connected)
            except OSError:
                if used is not None:
                    resolved[source] = used
        return resolved

    def _listen(self, replica: Replica, sources: dict[Source, Source]) -> None:
        """Subscribe to exactly these sources.

        `sources`: source with host names -> the same source with addresses in place of them.
        """
        assert self._pump is not None
        found = self._subscribers.setdefault(replica, {})
        # Stop the old subscribers first, because the index entries of a data-parallel rank belong
        # to one subscriber at a time.
        for source, used in [*found.items()]:
            if sources.get(source) != used.source or used.key is not _holder(replica, source):
                found.pop(source).stop()
        for source, resolved in sources.items():
            if source not in found:
                found[source] = Subscriber(
                    self._zmq,
                    self._context,
                    asyncio.get_running_loop(),
                    self._pump,
                    self.index,
                    _holder(replica, source),
                    resolved,
                    self.counters,
                    self._replay_timeout_s,
                )
        if not found:
            del self._subscribers[replica]

    async def _get(self, replica: Replica, path: str) -> bytes | None:
        """Return the body of a 200 answer.

        b"": the status is another one below 500, or the body is too large. `None`: there was no
        answer, or its status was 5xx.
        """
        import aiohttp

        assert self._session is not None
        address = replica.pool.address
        remember(self._names, address.host, address.resolve)
        tls, server_name = tls_of(replica)
        try:
            async with self._session.get(
                replica.config.url.rstrip("/") + path,
                headers=own_fields(replica, self._in_force.bearer),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                allow_redirects=False,
                ssl=tls,
                server_hostname=server_name,
            ) as response:
                if response.status != 200:
                    return b"" if response.status < 500 else None
                raw = b""
                async for piece in response.content.iter_chunked(65536):
                    raw += piece
                    if len(raw) > _ANSWER_BYTES:
                        return b""
                return raw
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return None


def _holder(replica: Replica, source: Source) -> Replica:
    """Return the replica whose cache a publisher reports."""
    ranks, place = replica.ranks, source.rank - replica.first_rank
    return ranks[place] if 0 <= place < len(ranks) else replica
